"""The command `proteus`. Every verb parses its options, calls one function, and says in one line what went wrong.

Exit code 0: done; 1: failed; 2: bad input, nothing bought or written; 130 or 143: told to end by a signal. Verbs import
what they run, so that `--help` is quick and Prefect reads its settings only after the verb has set them.
"""

import os
import sys
import traceback
from pathlib import Path
from typing import Any, NoReturn

import click

from flows.cli.commands.bench import bench
from flows.cli.commands.inspection.logs import logs
from flows.cli.commands.inspection.report import report
from flows.cli.commands.jobs.jobs import cost, jobs, stop, submit
from flows.cli.commands.market_data.evictions import evictions
from flows.cli.commands.market_data.traces import traces
from flows.cli.commands.planning.backtest import backtest
from flows.cli.commands.planning.bill import bill
from flows.cli.commands.planning.plan import plan
from flows.cli.commands.training.predict import predict
from flows.cli.commands.training.train import train
from flows.cli.options import charge_options
from flows.cli.training_options import app_options
from flows.terminal.interrupts import Interrupted, interruptible
from flows.terminal.output import write_json
from tasks.failures import ProteusError


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="proteus", prog_name="proteus")
def cli() -> None:
    """Train models on machines that can be taken away at any moment, for a fraction of the price."""


@cli.command()
@click.option(
    "--job", metavar="ID", help="Id of the job; that of an ended one shows its figures again. Default: a new one."
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of market and training.")
@click.option("--hours", type=click.FloatRange(min=0.05), default=2.0, show_default=True, help="Market hours to train.")
@click.option("--clocks", type=click.IntRange(min=1), help="Stop after this many clocks, if that comes first.")
@click.option(
    "--scale",
    type=click.FloatRange(min=1),
    show_default="60, or less where ticks are kept only so",
    help="Market seconds a second.",
)
@click.option("--prices", type=click.Path(path_type=Path), help="Price file to replay. Default: a generated market.")
@click.option("--catalog", type=click.Path(path_type=Path), help="CSV of instance types. Default: the shipped one.")
@click.option("--market", "markets", multiple=True, metavar="TYPE/ZONE", help="Bid here only (repeat). Default: all.")
@click.option("--availability", multiple=True, metavar="TYPE/ZONE=FILE",
              help="When machines of a market can be had, whatever is bid (repeat); begins with the run.")  # fmt: skip
@click.option("--reliable", type=int, default=1, show_default=True, help="On-demand machines that must last.")
@click.option("--max-vcpus", type=click.IntRange(min=0), default=8, show_default=True, help="Most spot vCPUs held.")
@click.option("--policy", default="best", show_default=True,
              help="Bidding policy: best, fixed-delta:USD, just-above, on-demand, proteus or standard.")  # fmt: skip
@click.option("--evictions", metavar="FILE",
              help="Eviction model of `proteus evictions fit`. Default: the paper's table, of the price history.")  # fmt: skip
@charge_options
@click.option("--staleness", type=click.IntRange(min=0), default=0, show_default=True, help="0 is bulk synchronous.")
@app_options
@click.option(
    "--data",
    metavar="NAME|FILE",
    help="Built-in set, or path or URL of a data file, packed or not. Default: digits; for mf: ratings.",
)
@click.option("--dir", "directory", type=click.Path(path_type=Path), help="Where state goes. Default: runs/JOB.")
@click.option("--database", metavar="URL", help="State database. Default: a SQLite file in --dir.")
@click.option("--endpoint", metavar="URL", help="An EC2-compatible endpoint that runs already. Default: our own.")
@click.option("--json", "json_target", metavar="FILE", help="Write the result for machines; - is standard output.")
def run(json_target: str | None, **options: Any) -> None:
    """Run one training job on this machine, on a simulated spot market, through the real parts.

    Starts a local Prefect API, an EC2-compatible endpoint and a Dask cluster whose machines come, are renewed or let
    go, and are evicted; ends with what it cost.
    """
    with interruptible() as interrupts:
        from flows.local.run import RunOptions, local_run
        from tasks.local.checks import check_file_target

        if json_target not in (None, "-"):
            check_file_target("--json", Path(json_target))
        result = local_run(RunOptions(**options), interrupts, quiet=json_target == "-")
        write_json(json_target, result)


for verb in (train, predict, traces, backtest, plan, bill, evictions, report, logs, jobs, cost, submit, stop, bench):
    cli.add_command(verb)


def main() -> None:
    """Run the command; turn every error into one line and an exit code."""
    try:
        with interruptible():
            cli.main(prog_name="proteus", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(2)
    except click.ClickException as error:
        _leave(2, error.format_message())
    except ProteusError as error:
        _leave(error.exit_code, str(error))
    except Interrupted as error:
        _leave(error.exit_code, f"interrupted: {error.outcome or 'nothing was bought'}")
    except (KeyboardInterrupt, click.exceptions.Abort):
        _leave(130, "interrupted: nothing was bought")
    except Exception:  # noqa: BLE001 - a fault of ours: its place is told, and the process ends like any other
        traceback.print_exc()
        _leave(1, "a fault in the program; the lines above say where")


def _leave(code: int, line: str) -> NoReturn:
    """Say one line and end at once: the threads of flows that are under way are not waited for."""
    print(f"proteus: {' '.join(line.split())}", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
