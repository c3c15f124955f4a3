"""`proteus run`: one training job over the simulated market of this machine."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from proteus_spot.bidding.market.model import HOUR_S
from proteus_spot.bidding.policies import AT_ONCE, policy
from proteus_spot.flows.local_market.job_threads import (
    HISTORY_DAYS,
    SCALE,
    JobThreads,
)
from proteus_spot.flows.local_market.market_run import MarketRun, run_on_market
from proteus_spot.flows.terminal.interrupts import Interrupts
from proteus_spot.flows.terminal.run_view import RunProgress, result_table
from proteus_spot.infra.clock import ScaledClock, SystemClock
from proteus_spot.infra.datasets import kinds as data_kinds
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.market_data.catalogs import read_catalog
from proteus_spot.infra.processes.surroundings import proteus_command
from proteus_spot.infra.validation import first_fault
from proteus_spot.reports.pages.page_tables import predict_command
from proteus_spot.studies.billing_options import billing_model
from proteus_spot.studies.job_spec import SCALE_IN, JobSpec
from proteus_spot.studies.market_data.eviction_tables import absolute_evictions, job_table
from proteus_spot.studies.market_data.local_market import (
    MarketFile,
    check_availability,
    generated_market,
    given_market,
)
from proteus_spot.studies.market_data.on_demand_prices import check_budget
from proteus_spot.studies.times import parse_deadline
from proteus_spot.tasks.local_market.run_checks import (
    JobStatus,
    begun_before,
    check_database,
    check_finite,
)
from proteus_spot.tasks.local_market.run_environment import (
    environment_variables,
    local_settings,
    losses_of,
)
from proteus_spot.tasks.training.application_checks import application, check_application, default_params
from proteus_spot.tasks.training.data_checks import check_data, default_data, partitions_of
from proteus_spot.tasks.training.hints import loss_hint

#: Default hours of a training without a deadline.
_HOURS = 2.0
#: Default number of partitions.
_PARTITIONS = 16
_ALLOCATION_VCPUS = 4


@dataclass(frozen=True)
class RunOptions:
    """The options of `proteus run`; see its `--help`."""

    job: str | None
    seed: int
    hours: float | None
    clocks: int | None
    scale: float | None
    prices: Path | None
    catalog: Path | None
    markets: tuple[str, ...]
    reliable: int
    max_vcpus: int
    policy: str
    evictions: str | None
    staleness: int
    app: str
    code: str | None
    params: tuple[str, ...]
    data: str | None
    directory: Path | None
    database: str | None
    endpoint: str | None
    budget: float | None = None
    until: str = ""
    deadline: str | None = None
    availability: tuple[str, ...] = ()
    rules: str = "2016"
    billing: str = "hourly-refund"
    reprice: str | None = None
    label: str = ""
    empty: str = "refuse"
    flat_price: str | None = None
    #: The options given, except the job's id and its directory, as words of a command line.
    given: tuple[str, ...] = ()
    scale_in: str = "auto"
    nan: str = "fail"

    @property
    def training_hours(self) -> float | None:
        """Hours after which the training ends; None: a deadline is given instead."""
        return _HOURS if self.hours is None and self.deadline is None else self.hours


def local_run(options: RunOptions, interrupts: Interrupts, quiet: bool = False) -> dict[str, Any]:
    """Run one job on this machine to its end; return its figures, those of an ended job again.

    Raises
    ------
    InputError
        If an option is invalid, before anything is bought or written.
    Interrupted
        If a signal asked to end, after the machines are released and the servers ended.
    """
    began_s = SystemClock().now_s()
    job_id = options.job or f"run-{datetime.fromtimestamp(began_s, UTC):%Y%m%d-%H%M%S}"
    directory = (options.directory or Path("runs") / job_id).absolute()
    again = _again(job_id, directory, options)
    _check_numbers(options)
    market = _market(options, directory)
    spec = job_spec(options, job_id, market)
    variables = _variables(options, directory)
    run = MarketRun(
        job_id=job_id,
        directory=directory,
        again=again,
        variables=variables,
        market=market,
        market_hours=_market_hours(options, market.start_s),
        prices=options.prices,
        catalog=options.catalog,
        endpoint=options.endpoint,
        database=options.database,
        availability=options.availability,
        seed=options.seed,
        scale=options.scale,
        today=options.rules == "today",
    )
    url, scale = run.url, run.check()
    progress = RunProgress(quiet)
    begun = begun_before(url, job_id, spec.model_dump(mode="json")) if check_database(url) else JobStatus.NEW
    if begun is JobStatus.ENDED:
        progress.say(f"job {job_id} was run to its end before; these are its figures")
        result, hint = _figures(job_id, directory, variables)
        if hint:
            progress.say(hint)
    else:
        if begun is JobStatus.NEW:
            check_budget(spec, read_catalog(options.catalog), market.start_s, "--budget")
            check_application(spec.training)
            for note in check_data(spec):
                progress.say(f"data: {note}")
            job_table(spec)
        result = run_on_market(run, begun, scale, progress.say, interrupts, partial(_train, spec, progress))
    result["real_seconds"] = SystemClock().now_s() - began_s
    result |= _results_of(spec, job_id, directory, url)
    progress.console.print(result_table(result))
    if hint := loss_hint(spec.training, losses_of(url, job_id), result.get("metrics")):
        progress.say(f"hint: {hint}")
    for line in _closing_lines(spec, result, options.database):
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


def _results_of(spec: JobSpec, job_id: str, directory: Path, url: str) -> dict[str, Any]:
    """Write the job's report; return what was trained, and the paths of the results."""
    from proteus_spot.tasks.reports.job_report import write_report

    return {
        "app": spec.training.app,
        "seed": spec.training.seed,
        "policy": spec.transient.policy,
        "directory": str(directory),
        "report": str(write_report(job_id, directory=directory, database=url)),
        "model": str(directory / "blobs" / "jobs" / job_id / "model"),
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


def _check_numbers(options: RunOptions) -> None:
    check_finite("--hours", options.hours)
    check_finite("--scale", options.scale)
    if options.budget is not None and not (math.isfinite(options.budget) and options.budget > 0):
        raise InputError(f"--budget {options.budget:g}: is not an amount to spend; give dollars above 0, as in 2.50")
    if options.deadline is not None:
        _check_deadline(options.deadline, options.clocks)
    if options.reliable < 1:
        raise InputError(f"--reliable {options.reliable}: a job needs a machine that lasts; give at least 1")
    try:
        policy(options.policy)
    except ValueError as error:
        raise InputError(f"--policy: {error}") from None
    billing_model(options.billing, flat_price=options.flat_price, reprice=options.reprice)  # raises on bad options


def _check_deadline(deadline: str, clocks: int | None) -> None:
    try:
        parse_deadline(deadline)
    except ValueError as error:
        raise InputError(f"--deadline: {error}") from None
    if clocks is None:
        raise InputError(
            f"--deadline {deadline}: a job that ends by it counts its work in clocks; give --clocks N (--hours counts "
            "time, not work)"
        )


def _variables(options: RunOptions, directory: Path) -> dict[str, str]:
    """Return the environment variables of this run and of the processes it starts."""
    return local_settings(directory, options.scale or SCALE, options.database, options.catalog)


def _market(options: RunOptions, directory: Path) -> MarketFile:
    if options.prices is None:
        market = generated_market(directory / "prices.csv.gz", options.markets, options.catalog, HISTORY_DAYS)
    else:
        given = partial(given_market, options.prices, options.markets, options.catalog)
        market = given(options.training_hours or 0.0)
        if options.deadline is not None:
            market = given(_market_hours(options, market.start_s), "an earlier --deadline")
    if options.deadline is not None and _market_hours(options, market.start_s) <= 0:
        begins = datetime.fromtimestamp(market.start_s, UTC).isoformat()
        raise InputError(f"--deadline {options.deadline}: has passed when the market's clock begins, at {begins}")
    if options.availability:
        check_availability(options.availability, market, options.endpoint)
    if 0 < options.max_vcpus < market.smallest_vcpus:
        raise InputError(
            f"--max-vcpus {options.max_vcpus}: the smallest machine of these markets has {market.smallest_vcpus}; give "
            "at least as many, or 0 to buy none"
        )
    return market


def _market_hours(options: RunOptions, start_s: int) -> float:
    """Return the hours that the market must last: those of the training, or those to the deadline."""
    by_deadline = 0.0
    if options.deadline is not None:
        by_deadline = (parse_deadline(options.deadline).time_s(start_s) - start_s) / HOUR_S
    return max(options.training_hours or 0.0, by_deadline)


def _figures(job_id: str, directory: Path, variables: dict[str, str]) -> tuple[dict[str, Any], str]:
    """Return the figures of a job that has ended, and how it goes on if a limit has stopped it."""
    inside = {"PREFECT_HOME": str(directory / "prefect")}  # the client needs a directory, even without a request
    with environment_variables({**variables, **inside}):
        from proteus_spot.tasks.job_records import how_to_go_on
        from proteus_spot.tasks.reports.job_summary import summary

        return summary(job_id), how_to_go_on(job_id)


def job_spec(options: RunOptions, job_id: str, market: MarketFile) -> JobSpec:
    """Return the job that the options describe; by default `mlr` on the digits, with additional features."""
    from pydantic import ValidationError

    reliable = min(market.markets)
    chosen = application("APP", options.app, options.code, options.params)
    data = options.data or default_data(chosen.app)
    defaults = default_params(chosen.app, data, options.seed)
    record = {
        "job_id": job_id,
        "training": {
            "app": chosen.app,
            "code": chosen.code,
            "app_params": {**defaults, **chosen.params},
            "data": data_kinds.absolute(data),
            "label": options.label,
            "empty": options.empty,
            "partitions": partitions_of(chosen, None, _PARTITIONS),
            "shards": 4,
            "staleness": options.staleness,
            "clocks": options.clocks,
            "hours": options.training_hours,
            "seed": options.seed,
            "until": options.until,
            "scale_in": SCALE_IN[options.scale_in],
            "nan": options.nan,
        },
        "reliable": {
            "count": options.reliable,
            "instance_type": reliable.instance_type,
            "zone": reliable.zone,
        },
        "transient": {
            "markets": list(options.markets) or [str(m) for m in market.markets],
            # a type may be larger than what a policy that buys in steps takes at once
            "allocation_vcpus": None if options.policy in AT_ONCE else max(_ALLOCATION_VCPUS, market.smallest_vcpus),
            "max_vcpus": options.max_vcpus,
            "policy": options.policy,
            "evictions": absolute_evictions(options.evictions or ""),
            "rules": options.rules,
            "billing": options.billing,
            "reprice": options.reprice,
            "flat_price": options.flat_price,
        },
        "budget_usd": options.budget,
        "deadline": options.deadline,
    }
    try:
        return JobSpec.model_validate(record)
    except ValidationError as error:
        raise InputError(f"job {job_id}: {first_fault(error)}; fix the option") from None


def _again(job_id: str, directory: Path, options: RunOptions) -> str:
    """Return the command that continues the job, quoted for a shell."""
    app = () if options.app == "mlr" else (options.app,)
    return proteus_command("run", *app, "--job", job_id, "--dir", str(directory), *options.given)
