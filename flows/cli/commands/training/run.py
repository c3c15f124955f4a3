"""The verb `proteus run`."""

from functools import partial
from pathlib import Path
from typing import Any

import click

from proteus_spot.flows.cli.job_options import (
    AUTO,
    JobCommand,
    application_options,
    billing_options,
    faults_by_option,
    job_option,
    job_options,
)
from proteus_spot.flows.cli.options import command_again, json_option, market_options, new_job_id
from proteus_spot.flows.terminal.interrupts import interruptible
from proteus_spot.flows.terminal.output import write_json


@click.command(cls=JobCommand, short_help="Run one job on a simulated spot market on this machine.")
@click.argument("app", metavar="[APP]", default="mlr")
@job_option("job_id", help="Id of the job; the id of an ended job shows its figures again. Default: a new id.")
@job_option("training.seed", help="Seed of market and training.")
@job_option("training.hours", type=click.FloatRange(min=0.05), show_default="2, none with --deadline")
@job_options("training.clocks", "training.until", "budget_usd", "deadline")
@market_options("runs/JOB")
@job_option("transient.markets", help="Bid only in this market (repeat). Default: all.")
@job_options("reliable.count", "transient.max_vcpus", "transient.policy", "transient.evictions")
@job_option("transient.rules", default="2016")
@partial(billing_options, show_default="hourly-refund; with --rules today per-second-first-hour-free")
@job_options("training.staleness")
@job_option("training.scale_in", default=AUTO)
@job_options("training.nan")
@application_options
@json_option()
def run(app: str, directory: Path | None, json_target: str | None, job: dict[str, Any], **place: Any) -> None:
    """Run one training job on this machine, on a simulated spot market, with the real components.

    APP is a built-in application, by default mlr, or module:Class of your own.

    It starts a local Prefect API, an EC2-compatible endpoint and a Dask cluster whose machines are bought, renewed,
    released and evicted, and ends with the costs.
    """
    with interruptible() as interrupts:
        from proteus_spot.flows.local_market.market_run import LocalRun
        from proteus_spot.flows.local_market.training_run import asked_job, local_run
        from proteus_spot.studies.billing_options import TODAYS_BILLING

        transient = job["transient"]
        today = transient["rules"] == "today"
        transient["policy"] = transient["policy"] or ("deadline" if today else "best")
        if today and not _is_given("transient.billing"):
            transient["billing"] = TODAYS_BILLING
        job_id = job["job_id"] or new_job_id("run")
        directory = (directory or Path("runs") / job_id).absolute()
        words = ("run", *([] if app == "mlr" else [app]), "--job", job_id)
        again = command_again(*words, directory=directory)
        seed, markets = job["training"]["seed"], transient["markets"]
        here = LocalRun(job_id, again, directory, **place, seed=seed, markets=markets, today=today)
        with faults_by_option():
            spec = asked_job(app, job, here)
        result = local_run(spec, here, interrupts, quiet=json_target == "-")
        write_json(json_target, result)


def _is_given(field: str) -> bool:
    source = click.get_current_context().get_parameter_source(field)
    return source is not click.core.ParameterSource.DEFAULT
