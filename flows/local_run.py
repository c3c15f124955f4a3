"""The main job on this machine: the same flows, called in this process at the market's scaled moments.

Prefect schedules on wall time and starts a triggered flow seconds later, which is longer than a scaled tick; so what
prefect.yaml schedules at scale 1 is called here by the clock, against a real Prefect API.
"""

import asyncio
import math
import shlex
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from bidding.policies import policy
from bidding.ports import MarketError
from flows.console import Progress, result_table
from flows.interrupts import Interrupted, Interrupts
from tasks.failures import InputError, ProteusError
from tasks.local_checks import (
    check_database,
    check_directory,
    check_endpoint,
    check_settings,
    ended_before,
)
from tasks.local_world import (
    LocalWorld,
    MarketFile,
    ScaledClock,
    SystemClock,
    generated_market,
    given_market,
    local_world,
    make_database,
    own_directory,
    surroundings,
    write_generated,
)
from tasks.spec import JobSpec

T = TypeVar("T")

#: Real seconds that a tick takes at the least on any machine: what is faster is refused before anything is started.
FLOW_LATENCY_S = 1.0
#: A tick takes about this many times what a flow with one touch of the market does, which is measured at the start.
_TOUCHES = 3
#: Size of the model: random Fourier features that are computed anew every clock, so that a clock really computes.
FEATURES = 8192
_LOOK_S = 0.25
_NOTICE_LOOK_S = 0.2
_HISTORY_DAYS = 14.0
_ALLOCATION_VCPUS = 4
#: So many ticks in a row may fail; a later one mends what they left undone.
_TICKS_MAY_FAIL = 2
#: Real seconds that a run which is given up has to let its machines go and close its books.
_GIVE_UP_S = 8.0
#: Real seconds that a tick under way has to end before that.
_TICK_ENDS_S = 4.0


@dataclass(frozen=True)
class RunOptions:
    """What `proteus run` was asked for; see its `--help`."""

    job: str | None
    seed: int
    hours: float
    clocks: int | None
    scale: float
    prices: Path | None
    catalog: Path | None
    markets: tuple[str, ...]
    reliable: int
    max_vcpus: int
    policy: str
    staleness: int
    directory: Path | None
    database: str | None
    endpoint: str | None


def local_run(options: RunOptions, interrupts: Interrupts, quiet: bool = False) -> dict[str, Any]:
    """Run one job on this machine to its end; return its figures. Run again, it tells them again.

    Raises
    ------
    InputError
        Before anything is bought or written, one line that names what is wrong.
    Interrupted
        Where a signal asked to end, when the machines are let go and the servers ended.
    """
    began_s = SystemClock().now_s()
    job_id = options.job or f"run-{datetime.fromtimestamp(began_s, UTC):%Y%m%d-%H%M%S}"
    directory = (options.directory or Path("runs") / job_id).absolute()
    _check_numbers(options)
    market = _market(options, directory)
    spec = job_spec(options, job_id, market)
    variables = _variables(options, directory)
    url = variables["PROTEUS_DATABASE_URL"]
    check_settings(variables, options.scale, FLOW_LATENCY_S)
    check_directory("--dir", directory)
    if options.endpoint is not None:
        check_endpoint(options.endpoint)
    progress = Progress(quiet)
    if check_database(url) and ended_before(url, job_id, spec.model_dump(mode="json")):
        progress.say(f"job {job_id} was run to its end before; these are its figures")
        result = _figures(job_id, directory, variables)
    else:
        with _begun(job_id, directory), own_directory(directory):
            make_database(url)
            if options.prices is None:
                write_generated(market, options.catalog, options.seed, options.hours)
            world = LocalWorld(
                directory, market.path, options.catalog, market.start_s, options.scale, 120, options.endpoint
            )
            progress.say(f"job {job_id}: starting a Prefect API and a market on this machine; state in {directory}")
            with local_world(world, variables) as clock:
                progress.say(f"Prefect UI at {world.prefect.ui_url}")
                check_settings(variables, options.scale, _TOUCHES * _measured_latency_s())
                with _giving_up(job_id, directory, interrupts):
                    result = _Run(spec, clock, progress).to_the_end()
    result["real_seconds"] = SystemClock().now_s() - began_s
    progress.console.print(result_table(result))
    progress.say(f"report: {_report(job_id, directory, url)}")
    return result


def _report(job_id: str, directory: Path, url: str) -> Path:
    """Write the job's report; return where it is."""
    from tasks.report_page import write_report

    return write_report(job_id, directory=directory, database=url)


def _check_numbers(options: RunOptions) -> None:
    for name, value in (("--hours", options.hours), ("--scale", options.scale)):
        if not math.isfinite(value):
            raise InputError(f"{name} {value}: is no number of use; give a finite one")
    if options.reliable < 1:
        raise InputError(f"--reliable {options.reliable}: a job needs a machine that lasts; give at least 1")
    try:
        policy(options.policy)
    except ValueError as error:
        raise InputError(f"--policy: {error}") from None


def _variables(options: RunOptions, directory: Path) -> dict[str, str]:
    """Return the settings that this run makes, for itself and for what it starts."""
    variables = {
        "PROTEUS_DATABASE_URL": options.database or f"sqlite:///{directory / 'state.db'}",
        "PROTEUS_BLOB_URL": (directory / "blobs").as_uri(),
        "PROTEUS_POLL_S": str(max(5.0, 0.2 * options.scale)),
        "PROTEUS_NOTICE_S": "120",
    }
    if options.catalog is not None:
        variables["PROTEUS_CATALOG"] = str(options.catalog.absolute())
    return variables


def _market(options: RunOptions, directory: Path) -> MarketFile:
    if options.prices is None:
        market = generated_market(directory / "prices.csv.gz", options.markets, options.catalog, _HISTORY_DAYS)
    else:
        market = given_market(options.prices, options.markets, options.catalog, options.hours)
    if 0 < options.max_vcpus < market.smallest_vcpus:
        raise InputError(
            f"--max-vcpus {options.max_vcpus}: the smallest machine of these markets has {market.smallest_vcpus}; give "
            "at least as many, or 0 to buy none"
        )
    return market


def _figures(job_id: str, directory: Path, variables: dict[str, str]) -> dict[str, Any]:
    """Return the figures of a job that has ended."""
    inside = {"PREFECT_HOME": str(directory / "prefect")}  # nothing is asked of it; its client wants a place
    with surroundings({**variables, **inside}):
        from tasks.report import summary

        return summary(job_id)


def job_spec(options: RunOptions, job_id: str, market: MarketFile) -> JobSpec:
    """Return the job that the options describe: `mlr` on the digits, with features to compute on."""
    from pydantic import ValidationError

    reliable = min(market.markets)
    record = {
        "job_id": job_id,
        "training": {
            "app": "mlr",
            "app_params": {"features": FEATURES, "gamma": 0.1, "step": 4.0, "feature_seed": options.seed},
            "data": "digits",
            "partitions": 16,
            "shards": 4,
            "staleness": options.staleness,
            "clocks": options.clocks,
            "hours": options.hours,
            "seed": options.seed,
        },
        "reliable": {
            "count": options.reliable,
            "instance_type": reliable.instance_type,
            "zone": reliable.zone,
        },
        "transient": {
            "markets": list(options.markets) or [str(m) for m in market.markets],
            "allocation_vcpus": max(_ALLOCATION_VCPUS, market.smallest_vcpus),
            "max_vcpus": options.max_vcpus,
            "policy": options.policy,
        },
    }
    try:
        return JobSpec.model_validate(record)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InputError(f"job {job_id}: {where}: {first['msg']} (is {first['input']!r}); mend the option") from None


def _measured_latency_s() -> float:
    """Return the real seconds that a flow with one touch of the market takes here, now that it has run once."""
    from flows.reap import reap

    clock = SystemClock()
    _call(reap)
    began_s = clock.now_s()
    _call(reap)
    return clock.now_s() - began_s


@contextmanager
def _begun(job_id: str, directory: Path) -> Iterator[None]:
    """Have an interruption tell how to begin anew, where nothing was bought before it."""
    try:
        yield
    except Interrupted as error:
        error.outcome = error.outcome or f"nothing was bought; to begin anew: {_again(job_id, directory)}"
        raise


@contextmanager
def _giving_up(job_id: str, directory: Path, interrupts: Interrupts) -> Iterator[None]:
    """Whatever ends the context before its time, let the job's machines go and close its books before the world ends."""
    try:
        yield
        interrupts.hold()
    except (Exception, Interrupted) as error:  # the ways to end: told to, or failed
        interrupts.hold()
        outcome = _give_up(job_id, directory, error)
        if isinstance(error, Interrupted):
            error.outcome = outcome
        elif isinstance(error, MarketError):
            raise ProteusError(f"job {job_id}: the market cannot be reached ({error}); {outcome}") from error
        raise


def _give_up(job_id: str, directory: Path, error: BaseException) -> str:
    from tasks.giving_up import give_up

    why = "interrupted" if isinstance(error, Interrupted) else " ".join(str(error).split()) or type(error).__name__
    giving = _in_thread("give-up", partial(give_up, job_id, why, _again(job_id, directory)))
    wait([giving], timeout=_GIVE_UP_S)
    if not giving.done() or giving.exception() is not None:
        return f"job {job_id}: its machines end with its market, and its books could not be closed"
    return giving.result()


def _again(job_id: str, directory: Path) -> str:
    return f"proteus run --job {job_id} --dir {shlex.quote(str(directory))} and the same options"


class _Run:
    """One job, its ticks, and what the terminal shows, each in a thread of its own.

    The threads do not keep the process from ending: a flow that waits for a machine cannot be told to stop.
    """

    def __init__(self, spec: JobSpec, clock: ScaledClock, progress: Progress) -> None:
        self._spec = spec
        self._clock = clock
        self._progress = progress
        self._done = threading.Event()

    def to_the_end(self) -> dict[str, Any]:
        """Train, tick and show until the training has ended; then let the market's clock run out."""
        from flows.train import train
        from tasks.report import snapshot, summary

        training = _in_thread("train", partial(_call, partial(train, self._spec)))
        ticking = _in_thread("tick", self._tick_until_done)
        try:
            while not training.done() and not ticking.done():
                self._show(snapshot)
                wait([training, ticking], timeout=_LOOK_S, return_when=FIRST_COMPLETED)
        finally:
            self._done.set()
            self._progress.close()
            wait([ticking], timeout=_TICK_ENDS_S)
        _raise_first(ticking, training)
        training.result()
        ticking.result()
        self._progress.say("trained; the market's clock jumps over the paid rest of the last hours")
        running_out = _in_thread("run out", self._run_out)
        while not running_out.done():
            wait([running_out], timeout=_LOOK_S)
        running_out.result()
        return summary(self._spec.job_id)

    def _tick_until_done(self) -> None:
        """Call the tick at every decision point, and the handler of every notice, until the training has ended."""
        from flows.allocation_tick import allocation_tick
        from flows.handle_eviction import handle_eviction
        from tasks.clocks import next_tick_s
        from tasks.notices import seen_notices
        from tasks.report import snapshot

        while snapshot(self._spec.job_id) is None:  # nothing to decide before the job is recorded
            if self._clock.wait_until(self._clock.now_s() + _LOOK_S * self._clock.scale, self._done):
                return
        handled: set[str] = set()
        failed = 0
        tick_s = next_tick_s()
        while not self._clock.wait_until(
            min(tick_s, self._clock.now_s() + _NOTICE_LOOK_S * self._clock.scale), self._done
        ):
            try:
                for notice in seen_notices(self._spec.job_id):
                    if notice.allocation_id not in handled:
                        _call(partial(handle_eviction, notice))
                        handled.add(notice.allocation_id)
                if self._clock.now_s() >= tick_s:
                    _call(partial(allocation_tick, self._spec.job_id))
                    tick_s = next_tick_s()
                    failed = 0
            except (ProteusError, MarketError) as error:
                failed += 1
                if failed > _TICKS_MAY_FAIL:
                    raise
                self._progress.say(f"a tick failed and the next one mends it: {' '.join(str(error).split())}")
                tick_s = next_tick_s()

    def _run_out(self) -> None:
        """Jump from hour's end to hour's end until nothing is held any more; evictions in between refund."""
        from flows.allocation_tick import allocation_tick
        from tasks.clocks import next_hour_end_s

        while (at_s := next_hour_end_s(self._spec.job_id)) is not None:
            self._clock.jump_to(at_s)
            _call(partial(allocation_tick, self._spec.job_id))

    def _show(self, snapshot: Callable[[str], Any]) -> None:
        shot = snapshot(self._spec.job_id)
        if shot is not None:
            self._progress.show(shot, SystemClock().now_s())


def _call(flow: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Run an asynchronous flow in this thread."""
    return asyncio.run(flow())


def _in_thread(name: str, call: Callable[[], T]) -> "Future[T]":
    """Call in a thread that does not outlive the process's main one."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised again by whoever asks the future
            future.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


def _raise_first(*futures: "Future[Any]") -> None:
    for future in futures:
        if future.done() and (error := future.exception()) is not None:
            raise error
