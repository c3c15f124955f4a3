"""The verb `proteus run`."""

from pathlib import Path
from typing import Any

import click

from proteus_spot.flows.cli.options import (
    charge_options,
    code_options,
    given_options,
    json_option,
    nan_option,
    scale_in_option,
    table_options,
)
from proteus_spot.flows.terminal.interrupts import interruptible
from proteus_spot.flows.terminal.output import write_json


@click.command(short_help="Run one job on a simulated spot market on this machine.")
@click.argument("app", metavar="[APP]", default="mlr")
@click.option(
    "--job", metavar="ID", help="Id of the job; the id of an ended job shows its figures again. Default: a new id."
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of market and training.")
@click.option("--hours", type=click.FloatRange(min=0.05), show_default="2, none with --deadline",
              help="Market hours to train.")  # fmt: skip
@click.option("--clocks", type=click.IntRange(min=1), help="Stop after this many clocks, if earlier.")
@click.option("--until", default="", metavar="RULE",
              help="Stop when it has converged, if earlier: loss=0.1, no-improvement=5 (clocks), or a bound on a "
              "figure of the held-out part: 'accuracy>=0.95', 'rmse<=0.8'.")  # fmt: skip
@click.option("--budget", type=float, metavar="USD", help="Maximum cost; when it is reached the job saves and stops.")
@click.option("--deadline", metavar="TIME",
              help="Finish --clocks by then, if need be on demand: 90m or 12h from the start, or a time with its "
              "zone.")  # fmt: skip
@click.option(
    "--scale",
    type=click.FloatRange(min=1),
    show_default="60, or less where ticks are kept only so",
    help="Market seconds per real second.",
)
@click.option("--prices", type=click.Path(path_type=Path), help="Price file to replay. Default: a generated market.")
@click.option("--catalog", type=click.Path(path_type=Path), help="CSV of instance types. Default: the shipped one.")
@click.option(
    "--market", "markets", multiple=True, metavar="TYPE/ZONE", help="Bid only in this market (repeat). Default: all."
)
@click.option("--availability", multiple=True, metavar="TYPE/ZONE=FILE",
              help="When a market has capacity, at any bid (repeat); the trace begins with the run.")  # fmt: skip
@click.option("--reliable", type=int, default=1, show_default=True, help="On-demand machines of the reliable tier.")
@click.option("--max-vcpus", type=click.IntRange(min=0), default=8, show_default=True, help="Maximum spot vCPUs held.")
@click.option("--policy", default="best", show_default=True,
              help="Policy: best, deadline, fixed-delta:USD, just-above, on-demand, proteus or standard.")  # fmt: skip
@click.option("--evictions", metavar="FILE",
              help="Eviction model of `proteus evictions fit`. Default: the paper's table, "
              "fitted on the price history.")  # fmt: skip
@click.option("--rules", type=click.Choice(["2016", "today"]), default="2016", show_default=True,
              help="Rules of the market: 2016, bids decide; today, no bid, as many machines as there are, taken for "
              "their capacity.")  # fmt: skip
@charge_options
@click.option("--staleness", type=click.IntRange(min=0), default=0, show_default=True, help="0 is bulk synchronous.")
@scale_in_option
@nan_option
@code_options
@click.option(
    "--data",
    metavar="NAME|FILE",
    help="Built-in set, or path or URL of a data file, packed or not. Default: digits; for mf: ratings.",
)
@table_options
@click.option("--dir", "directory", type=click.Path(path_type=Path), help="Directory of the state. Default: runs/JOB.")
@click.option("--database", metavar="URL", help="State database. Default: a SQLite file in --dir.")
@click.option("--endpoint", metavar="URL", help="A running EC2-compatible endpoint. Default: one started by the run.")
@json_option()
def run(json_target: str | None, **options: Any) -> None:
    """Run one training job on this machine, on a simulated spot market, with the real components.

    APP is a built-in application, by default mlr, or module:Class of your own.

    It starts a local Prefect API, an EC2-compatible endpoint and a Dask cluster whose machines are bought, renewed,
    released and evicted, and ends with the costs.
    """
    with interruptible() as interrupts:
        from proteus_spot.flows.local_market.training_run import RunOptions, local_run
        from proteus_spot.studies.billing_options import TODAYS_BILLING
        from proteus_spot.studies.output_files import check_file_target

        if json_target not in (None, "-"):
            check_file_target("--json", Path(json_target))
        if options["rules"] == "today":
            todays = {"billing": TODAYS_BILLING, "policy": "deadline"}
            options |= {name: value for name, value in todays.items() if not _is_given(name)}
        given = given_options(click.get_current_context(), "job", "directory")
        result = local_run(RunOptions(**options, given=given), interrupts, quiet=json_target == "-")
        write_json(json_target, result)


def _is_given(name: str) -> bool:
    source = click.get_current_context().get_parameter_source(name)
    return source is not click.core.ParameterSource.DEFAULT
