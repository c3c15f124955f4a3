"""The verb `proteus sweep run`."""

from pathlib import Path
from typing import Any

import click

from proteus_spot.flows.cli.options import command_again, json_option, market_options
from proteus_spot.flows.terminal.interrupts import interruptible
from proteus_spot.flows.terminal.output import write_json


@click.command(short_help="Run a whole sweep on a simulated spot market on this machine.")
@click.argument("sweep_file", type=click.Path(path_type=Path))
@click.option("--sweep-id", metavar="ID", help="Id of a sweep to go on with. Default: a new one of its name.")
@click.option("--hours", type=click.FloatRange(min=0.05), show_default="48",
              help="Market hours that the prices must last.")  # fmt: skip
@click.option("--market-seed", "seed", type=click.IntRange(min=0), default=0, show_default=True,
              help="Seed of a generated market.")  # fmt: skip
@market_options("runs/ID")
@json_option()
def run(
    sweep_file: Path,
    sweep_id: str | None,
    hours: float | None,
    directory: Path | None,
    json_target: str | None,
    **place: Any,
) -> None:
    """Run the sweep of SWEEP_FILE (YAML) on this machine, on a simulated spot market, with the real components.

    It starts a local Prefect API and an EC2-compatible endpoint whose machines are processes that are bought, noticed,
    evicted and released, and ends with the best trial and the costs. Exit code 1: no trial has a value.
    """
    with interruptible() as interrupts:
        from proteus_spot.flows.local_market.market_run import LocalRun
        from proteus_spot.flows.local_market.sweep_run import asked_sweep, local_sweep

        spec = asked_sweep(sweep_file, sweep_id, directory, place["database"])
        directory = (directory or Path("runs") / spec.job_id).absolute()
        again = command_again("sweep", "run", str(sweep_file), "--sweep-id", spec.job_id, directory=directory)
        here = LocalRun(spec.job_id, again, directory, **place)
        result = local_sweep(sweep_file, spec, here, hours, interrupts, quiet=json_target == "-")
        write_json(json_target, result)
    if result["state"] == "failed":
        raise click.exceptions.Exit(1)
