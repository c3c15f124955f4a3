"""The verb `proteus sweep run`."""

from pathlib import Path
from typing import Any

import click

from proteus_spot.flows.cli.options import given_options, json_option
from proteus_spot.flows.terminal.interrupts import interruptible
from proteus_spot.flows.terminal.output import write_json


@click.command(short_help="Run a whole sweep on a simulated spot market on this machine.")
@click.argument("sweep_file", type=click.Path(path_type=Path))
@click.option("--sweep-id", metavar="ID", help="Id of a sweep to go on with. Default: a new one of its name.")
@click.option(
    "--scale",
    type=click.FloatRange(min=1),
    show_default="60, or less where ticks are kept only so",
    help="Market seconds per real second.",
)
@click.option("--hours", type=click.FloatRange(min=0.05), show_default="48",
              help="Market hours that the prices must last.")  # fmt: skip
@click.option("--prices", type=click.Path(path_type=Path), help="Price file to replay. Default: a generated market.")
@click.option("--market-seed", type=click.IntRange(min=0), default=0, show_default=True,
              help="Seed of a generated market.")  # fmt: skip
@click.option("--catalog", type=click.Path(path_type=Path), help="CSV of instance types. Default: the shipped one.")
@click.option("--availability", multiple=True, metavar="TYPE/ZONE=FILE",
              help="When a market has capacity, at any bid (repeat); the trace begins with the run.")  # fmt: skip
@click.option("--dir", "directory", type=click.Path(path_type=Path), help="Directory of the state. Default: runs/ID.")
@click.option("--database", metavar="URL", help="State database. Default: a SQLite file in --dir.")
@click.option("--endpoint", metavar="URL", help="A running EC2-compatible endpoint. Default: one started by the run.")
@json_option()
def run(json_target: str | None, **options: Any) -> None:
    """Run the sweep of SWEEP_FILE (YAML) on this machine, on a simulated spot market, with the real components.

    It starts a local Prefect API and an EC2-compatible endpoint whose machines are processes that are bought, noticed,
    evicted and released, and ends with the best trial and the costs. Exit code 1: no trial has a value.
    """
    with interruptible() as interrupts:
        from proteus_spot.flows.local_market.sweep_run import SweepOptions, local_sweep
        from proteus_spot.studies.output_files import check_file_target

        if json_target not in (None, "-"):
            check_file_target("--json", Path(json_target))
        given = given_options(click.get_current_context(), "sweep_id", "directory")
        result = local_sweep(SweepOptions(**options, given=given), interrupts, quiet=json_target == "-")
        write_json(json_target, result)
    if result["state"] == "failed":
        raise click.exceptions.Exit(1)
