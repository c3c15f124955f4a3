"""The command: `proteus`, or `python -m proteus_spot`."""


def main() -> None:
    """Run the command."""
    from proteus_spot.flows.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
