"""`proteus run`: the flows of a job, called in this process at scaled market times.

Prefect schedules on wall time and starts a triggered flow seconds later, which is longer than a scaled tick; so the
flows that prefect.yaml schedules at scale 1 are called by the scaled clock, against a real Prefect API.
"""

import errno
import math
import shlex
from collections.abc import Iterator, Mapping
from concurrent.futures import wait
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from bidding.market.model import HOUR_S
from bidding.market.spot_market import MarketError
from bidding.policies import AT_ONCE, policy
from flows.local.job_threads import (
    FLOW_LATENCY_S,
    HISTORY_DAYS,
    SCALE,
    TOUCHES,
    JobThreads,
    in_thread,
    measured_latency_s,
)
from flows.terminal.interrupts import Interrupted, Interrupts
from flows.terminal.run_view import RunProgress, clock_time, result_table
from infra.clock import SystemClock
from infra.errors import InputError, ProteusError
from infra.validation import first_fault
from reports.pages.job_tables import predict_command
from tasks.billing_options import billing_model
from tasks.job_spec import JobSpec
from tasks.local.checks import (
    JobStatus,
    begun_before,
    check_database,
    check_directory,
    check_endpoint,
    check_finite,
    check_run_budget,
    check_settings,
    kept_scale,
)
from tasks.local.environment import (
    environment_variables,
    forget_claims,
    goes_on_at,
    local_environment,
    local_settings,
    losses_of,
    make_database,
    record_command,
    run_directory,
)
from tasks.market_data.eviction_tables import absolute_evictions, job_table
from tasks.market_data.local_market import (
    MarketFile,
    check_availability,
    generated_market,
    given_market,
    write_generated,
)
from tasks.times import parse_deadline
from tasks.training.application_checks import application, check_application, default_params
from tasks.training.hints import loss_hint
from tasks.training.inputs import absolute_data, check_data, default_data

#: Default hours of a training without a deadline.
_HOURS = 2.0
_ALLOCATION_VCPUS = 4
#: Three times the bytes that the smallest run writes (Prefect server, database and market).
_NEEDED_BYTES = 32 * 2**20
#: Maximum real seconds for an interrupted run to save its model, release machines and book its costs.
_PAUSE_S = 8.0


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
    deadline: str | None = None
    availability: tuple[str, ...] = ()
    billing: str = "hourly-refund"
    reprice: str | None = None
    flat_price: str | None = None
    #: The options given, except the job's id and its directory, as words of a command line.
    given: tuple[str, ...] = ()

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
    url = variables["PROTEUS_DATABASE_URL"]
    scale = options.scale or kept_scale(variables, SCALE, FLOW_LATENCY_S)
    check_settings(variables, scale, FLOW_LATENCY_S)
    check_directory("--dir", directory, _NEEDED_BYTES)
    if options.endpoint is not None:
        check_endpoint(options.endpoint)
    progress = RunProgress(quiet)
    begun = begun_before(url, job_id, spec.model_dump(mode="json")) if check_database(url) else JobStatus.NEW
    if begun is JobStatus.ENDED:
        progress.say(f"job {job_id} was run to its end before; these are its figures")
        result = _figures(job_id, directory, variables)
    else:
        if begun is JobStatus.NEW:
            check_run_budget(spec, options.catalog, market.start_s)
            check_application(spec.training)
            for note in check_data(spec):
                progress.say(f"data: {note}")
            job_table(spec)
        with _begun(again, begun), run_directory(directory), _recorded(url, job_id, again):
            start_s: float = market.start_s
            verb = "starting"
            if begun is JobStatus.PAUSED:
                start_s, before = goes_on_at(
                    directory, url, job_id, options.scale, market_stays=options.endpoint is None
                )
                scale = before or scale
                if options.database is None:
                    forget_claims(url)
                verb = f"goes on after {clock_time(start_s - market.start_s)} of market time; starting"
            make_database(url)
            if options.prices is None and not market.path.exists():
                bids_decide = not options.availability
                hours = _market_hours(options, market.start_s)
                write_generated(market, options.catalog, options.seed, hours, bids_decide=bids_decide)
            progress.say(f"job {job_id}: {verb} a Prefect API and a market on this machine; state in {directory}")
            with local_environment(
                variables,
                directory=directory,
                prices=market.path,
                catalog=options.catalog,
                start_s=start_s,
                scale=scale,
                notice_s=120,
                endpoint_url=options.endpoint,
                availability=options.availability,
                availability_from_s=market.start_s,
            ) as world:
                clock = world.clock
                progress.say(f"Prefect UI at {world.prefect.ui_url}")
                tick_takes_s = TOUCHES * measured_latency_s()
                if options.scale is None and begun is JobStatus.NEW:
                    fastest, scale = scale, kept_scale(variables, scale, tick_takes_s)
                    if scale < fastest:
                        clock.run_at(scale)
                        progress.say(
                            f"at a scale of {scale:g}, not {fastest:g}: a tick takes {tick_takes_s:.2f} s here"
                        )
                try:
                    check_settings(variables, scale, tick_takes_s)
                except InputError as error:
                    if begun is JobStatus.NEW:
                        raise
                    progress.say(f"ticks may come late, for the machine is slower than when the job was begun: {error}")
                with _pausing(job_id, directory, again, interrupts, options.endpoint is None):
                    result = JobThreads(spec, clock, progress).to_the_end()
    result["real_seconds"] = SystemClock().now_s() - began_s
    result |= _results_of(spec, job_id, directory, url)
    progress.console.print(result_table(result))
    if hint := loss_hint(spec.training, losses_of(url, job_id)):
        progress.say(f"hint: {hint}")
    for line in _closing_lines(spec, result, options.database):
        progress.say(line)
    return result


def _results_of(spec: JobSpec, job_id: str, directory: Path, url: str) -> dict[str, Any]:
    """Write the job's report; return what was trained, and the paths of the results."""
    from tasks.reports.job_page import write_report

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
        shlex.join(["proteus", "cost", result["job"], *where]),
        shlex.join(["proteus", "logs", result["job"], *where]),
    ]
    return [f"report: {result['report']}", f"model: {result['model']}", "next:", *(f"  {each}" for each in commands)]


def _check_numbers(options: RunOptions) -> None:
    check_finite("--hours", options.hours)
    check_finite("--scale", options.scale)
    if options.budget is not None and not (math.isfinite(options.budget) and options.budget > 0):
        raise InputError(f"--budget {options.budget:g}: is no amount to spend; give dollars above 0, as in 2.50")
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


def _figures(job_id: str, directory: Path, variables: dict[str, str]) -> dict[str, Any]:
    """Return the figures of a job that has ended."""
    inside = {"PREFECT_HOME": str(directory / "prefect")}  # the client needs a directory, even without a request
    with environment_variables({**variables, **inside}):
        from tasks.reports.job_summary import summary

        return summary(job_id)


def job_spec(options: RunOptions, job_id: str, market: MarketFile) -> JobSpec:
    """Return the job that the options describe; by default `mlr` on the digits, with additional features."""
    from pydantic import ValidationError

    reliable = min(market.markets)
    chosen = application("--app", options.app, options.code, options.params)
    data = options.data or default_data(chosen.app)
    defaults = default_params(chosen.app, data, options.seed)
    record = {
        "job_id": job_id,
        "training": {
            "app": chosen.app,
            "code": chosen.code,
            "app_params": {**defaults, **chosen.params},
            "data": absolute_data(data),
            "partitions": 16,
            "shards": 4,
            "staleness": options.staleness,
            "clocks": options.clocks,
            "hours": options.training_hours,
            "seed": options.seed,
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
        raise InputError(f"job {job_id}: {first_fault(error)}; mend the option") from None


@contextmanager
def _recorded(url: str, job_id: str, again: str) -> Iterator[None]:
    """Record the command that continues or repeats the job, however the context ends."""
    try:
        yield
    finally:
        if check_database(url):
            record_command(url, job_id, again)


@contextmanager
def _begun(again: str, begun: JobStatus) -> Iterator[None]:
    """Add the command that starts or continues the job to an interruption before anything is bought."""
    try:
        yield
    except Interrupted as error:
        end = "to begin anew" if begun is JobStatus.NEW else "to go on"
        error.outcome = error.outcome or f"nothing was bought; {end}: {again}"
        raise


@contextmanager
def _pausing(job_id: str, directory: Path, again: str, interrupts: Interrupts, market_stays: bool) -> Iterator[None]:
    """Save the state of the job before the runtime ends, if an error or a signal ends the context."""
    try:
        yield
        interrupts.hold()
    except (Exception, Interrupted) as error:  # failed, or ended by a signal
        interrupts.hold()
        outcome = _pause(job_id, again, market_stays)
        if isinstance(error, Interrupted):
            error.outcome = outcome
        elif isinstance(error, MarketError):
            raise ProteusError(f"job {job_id}: the market cannot be reached ({error}); {outcome}") from error
        elif isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise ProteusError(f"job {job_id}: {error.strerror}: {error.filename or directory}; {outcome}") from error
        raise


def _pause(job_id: str, again: str, market_stays: bool) -> str:
    from tasks.local.pause import pause

    pausing = in_thread("pause", partial(pause, job_id, again, market_stays))
    wait([pausing], timeout=_PAUSE_S)
    if not pausing.done() or pausing.exception() is not None:
        return f"job {job_id}: leaves nothing running, and its books could not be closed; to go on: {again}"
    return pausing.result()


def _again(job_id: str, directory: Path, options: RunOptions) -> str:
    """Return the command that continues the job, quoted for a shell."""
    return shlex.join(["proteus", "run", "--job", job_id, "--dir", str(directory), *options.given])
