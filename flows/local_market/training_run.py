"""`proteus run`: one training job over the simulated market of this machine."""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

from proteus_spot.bidding.market.model import HOUR_S
from proteus_spot.bidding.policies import AT_ONCE
from proteus_spot.flows.local_market.job_threads import JobThreads
from proteus_spot.flows.local_market.market_run import LocalRun, run_on_market
from proteus_spot.flows.terminal.interrupts import Interrupts
from proteus_spot.flows.terminal.run_view import RunProgress, result_table
from proteus_spot.infra.clock import ScaledClock, SystemClock
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.market_data.catalogs import read_catalog
from proteus_spot.infra.processes.surroundings import proteus_command
from proteus_spot.reports.pages.page_tables import predict_command
from proteus_spot.studies.billing_options import billing_model
from proteus_spot.studies.job_spec import JobSpec
from proteus_spot.studies.market_data.eviction_tables import absolute_evictions, job_table
from proteus_spot.studies.market_data.local_market import MarketFile
from proteus_spot.studies.market_data.on_demand_prices import check_budget
from proteus_spot.tasks.local_market.run_checks import JobStatus, begun_before, check_database
from proteus_spot.tasks.local_market.run_environment import losses_of
from proteus_spot.tasks.training.application_checks import check_application
from proteus_spot.tasks.training.data_checks import asked_training, check_data
from proteus_spot.tasks.training.hints import loss_hint

#: Default hours of a training without a deadline.
_HOURS = 2.0
_ALLOCATION_VCPUS = 4


def asked_job(app: str, asked: Mapping[str, Any], run: LocalRun) -> JobSpec:
    """Return the job that options describe; by default `mlr` on the digits, with additional features.

    Parameters
    ----------
    asked : the values of the options, by field.

    Raises
    ------
    InputError
        If an option is invalid, or does not fit the market.
    ValidationError
        If a value is none that its field can have.
    """
    training, transient, market = asked_training(app, asked["training"]), asked["transient"], run.market
    if training["hours"] is None and None in (asked["deadline"], training["clocks"]):
        training["hours"] = _HOURS
    billing_model(transient["billing"], flat_price=transient["flat_price"], reprice=transient["reprice"])
    first = min(market.markets)
    # a type may be larger than what a policy that buys in steps takes at once
    at_once = None if transient["policy"] in AT_ONCE else max(_ALLOCATION_VCPUS, market.smallest_vcpus)
    spec = JobSpec.model_validate(
        {
            **asked,
            "job_id": run.job_id,
            "training": training,
            "reliable": {**asked["reliable"], "instance_type": first.instance_type, "zone": first.zone},
            "transient": {
                **transient,
                "markets": transient["markets"] or [str(each) for each in market.markets],
                "allocation_vcpus": at_once,
                "evictions": absolute_evictions(transient["evictions"]),
            },
        }
    )
    _check_market(spec, market)
    return spec


def _check_market(spec: JobSpec, market: MarketFile) -> None:
    """Refuse a job that the market does not last for, or has no machine for."""
    if spec.deadline is not None and _market_hours(spec, market) <= 0:
        begins = datetime.fromtimestamp(market.start_s, UTC).isoformat()
        raise InputError(f"--deadline {spec.deadline}: has passed when the market's clock begins, at {begins}")
    market.check_lasts(spec.training.hours or 0.0)
    market.check_lasts(_market_hours(spec, market), "an earlier --deadline")
    if 0 < spec.transient.max_vcpus < market.smallest_vcpus:
        raise InputError(
            f"--max-vcpus {spec.transient.max_vcpus}: the smallest machine of these markets has "
            f"{market.smallest_vcpus}; give at least as many, or 0 to buy none"
        )


def _market_hours(spec: JobSpec, market: MarketFile) -> float:
    """Return the hours that the market must last: those of the training, or those to the deadline."""
    deadline_s = spec.deadline_s(market.start_s)
    by_deadline = 0.0 if deadline_s is None else (deadline_s - market.start_s) / HOUR_S
    return max(spec.training.hours or 0.0, by_deadline)


def local_run(spec: JobSpec, run: LocalRun, interrupts: Interrupts, quiet: bool = False) -> dict[str, Any]:
    """Run one job on this machine to its end; return its figures, those of an ended job again.

    Raises
    ------
    InputError
        If an option is invalid, before anything is bought or written.
    Interrupted
        If a signal asked to end, after the machines are released and the servers ended.
    """
    began_s = SystemClock().now_s()
    job_id, url, scale = run.job_id, run.url, run.check()
    progress = RunProgress(quiet)
    begun = begun_before(url, job_id, spec.model_dump(mode="json")) if check_database(url) else JobStatus.NEW
    if begun is JobStatus.ENDED:
        progress.say(f"job {job_id} was run to its end before; these are its figures")
        result, hint = _figures(run)
        if hint:
            progress.say(hint)
    else:
        if begun is JobStatus.NEW:
            check_budget(spec, read_catalog(run.catalog), run.market.start_s, "--budget")
            check_application(spec.training)
            for note in check_data(spec):
                progress.say(f"data: {note}")
            job_table(spec)
        hours = _market_hours(spec, run.market)
        result = run_on_market(run, hours, begun, scale, progress.say, interrupts, partial(_train, spec, progress))
    result["real_seconds"] = SystemClock().now_s() - began_s
    result |= _results_of(spec, run)
    progress.console.print(result_table(result))
    if hint := loss_hint(spec.training, losses_of(url, job_id), result.get("metrics")):
        progress.say(f"hint: {hint}")
    for line in _closing_lines(spec, result, run.database):
        progress.say(line)
    return result


def _train(spec: JobSpec, progress: RunProgress, clock: ScaledClock) -> dict[str, Any]:
    """Run the flow of the training, and the ticks, to the end; return the job's figures."""
    from proteus_spot.flows.train import train
    from proteus_spot.tasks.reports.job_summary import snapshot, summary

    job_id = spec.job_id
    threads = JobThreads(job_id, partial(train, spec), clock, progress, partial(snapshot, job_id))
    threads.to_the_end("trained; the market's clock jumps over the paid rest of the last hours")
    return summary(job_id)


def _results_of(spec: JobSpec, run: LocalRun) -> dict[str, Any]:
    """Write the job's report; return what was trained, and the paths of the results."""
    from proteus_spot.tasks.reports.job_report import write_report

    return {
        "app": spec.training.app,
        "seed": spec.training.seed,
        "policy": spec.transient.policy,
        "directory": str(run.directory),
        "report": str(write_report(run.job_id, directory=run.directory, database=run.url)),
        "model": str(run.directory / "blobs" / "jobs" / run.job_id / "model"),
    }


def _closing_lines(spec: JobSpec, result: Mapping[str, Any], database: str | None) -> list[str]:
    """Return lines with the paths of the results and the next commands, quoted for a shell."""
    where = ["--dir", result["directory"], *([] if database is None else ["--database", database])]
    commands = [
        predict_command(result["model"], spec.training.data, spec.training.app, spec.training.code),
        proteus_command("cost", result["job"], *where),
        proteus_command("logs", result["job"], *where),
    ]
    return [f"report: {result['report']}", f"model: {result['model']}", "next:", *(f"  {each}" for each in commands)]


def _figures(run: LocalRun) -> tuple[dict[str, Any], str]:
    """Return the figures of a job that has ended, and how it goes on if a limit has stopped it."""
    with run.records():
        from proteus_spot.tasks.job_records import how_to_go_on
        from proteus_spot.tasks.reports.job_summary import summary

        return summary(run.job_id), how_to_go_on(run.job_id)
