"""The command `proteus`. Every verb parses its options, calls one function, and says in one line what went wrong.

Exit code 0: done; 1: failed; 2: bad input, nothing bought or written. Verbs import what they run, so that `--help` is
quick and Prefect reads its settings only after the verb has set them.
"""

import json
import sys
from pathlib import Path
from typing import Any

import click

from tasks.failures import ProteusError


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="proteus", prog_name="proteus")
def cli() -> None:
    """Train models on machines that can be taken away at any moment, for a fraction of the price."""


def write_json(target: str | None, result: dict[str, Any]) -> None:
    """Write `result` for machines to the file `target`; `-` is standard output, None is nowhere."""
    if target is None:
        return
    text = json.dumps(result, indent=2) + "\n"
    if target == "-":
        sys.stdout.write(text)
    else:
        Path(target).write_text(text)


@cli.command()
@click.option("--job", metavar="ID", help="Id of the job; the same id attaches or resumes. Default: a new one.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of market and training.")
@click.option("--hours", type=click.FloatRange(min=0.05), default=2.0, show_default=True, help="Market hours to train.")
@click.option("--clocks", type=click.IntRange(min=1), help="Stop after this many clocks, if that comes first.")
@click.option("--scale", type=click.FloatRange(min=1), default=60.0, show_default=True, help="Market seconds a second.")
@click.option("--prices", type=click.Path(path_type=Path), help="Price file to replay. Default: a generated market.")
@click.option("--catalog", type=click.Path(path_type=Path), help="CSV of instance types. Default: the shipped one.")
@click.option("--market", "markets", multiple=True, metavar="TYPE/ZONE", help="Bid here only (repeat). Default: all.")
@click.option("--reliable", type=int, default=1, show_default=True, help="On-demand machines that must last.")
@click.option("--max-vcpus", type=click.IntRange(min=0), default=8, show_default=True, help="Most spot vCPUs held.")
@click.option("--policy", default="proteus", show_default=True, help="Bidding policy.")
@click.option("--staleness", type=click.IntRange(min=0), default=0, show_default=True, help="0 is bulk synchronous.")
@click.option("--dir", "directory", type=click.Path(path_type=Path), help="Where state goes. Default: runs/JOB.")
@click.option("--database", metavar="URL", help="State database. Default: a SQLite file in --dir.")
@click.option("--endpoint", metavar="URL", help="An EC2-compatible endpoint that runs already. Default: our own.")
@click.option("--json", "json_target", metavar="FILE", help="Write the result for machines; - is standard output.")
def run(json_target: str | None, **options: Any) -> None:
    """Run one training job on this machine, on a simulated spot market, through the real parts.

    Starts a local Prefect API, an EC2-compatible endpoint and a Dask cluster whose machines come, are renewed or let
    go, and are evicted; ends with what it cost.
    """
    from flows.local_run import RunOptions, local_run

    result = local_run(RunOptions(**options), quiet=json_target == "-")
    write_json(json_target, result)


def main() -> None:
    """Run the command; turn every error into one line and an exit code."""
    try:
        cli.main(prog_name="proteus", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(2)
    except click.ClickException as error:
        print(f"proteus: {' '.join(error.format_message().split())}", file=sys.stderr)
        sys.exit(2)
    except ProteusError as error:
        print(f"proteus: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.exceptions.Abort):
        print("proteus: interrupted", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
