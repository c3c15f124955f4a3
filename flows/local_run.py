"""The main job on this machine: the same flows, called in this process at the market's scaled moments.

Prefect schedules on wall time and starts a triggered flow seconds later, which is longer than a scaled tick; so what
prefect.yaml schedules at scale 1 is called here by the clock, against a real Prefect API.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from flows.console import Progress, result_table
from tasks.failures import InputError
from tasks.local_world import (
    LocalWorld,
    MarketFile,
    ScaledClock,
    SystemClock,
    check_market_names,
    check_settings,
    generated_market,
    given_market,
    local_world,
)

#: Real seconds that a flow takes in this process; a tick must not be shorter (facts are printed by `proteus doctor`).
FLOW_LATENCY_S = 1.0
#: Size of the model: random Fourier features that are computed anew every clock, so that a clock really computes.
FEATURES = 8192
_LOOK_S = 0.25
_NOTICE_LOOK_S = 0.2


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


def local_run(options: RunOptions, quiet: bool = False) -> dict[str, Any]:
    """Run one job on this machine to its end; return its figures.

    Raises
    ------
    InputError
        Before anything is bought or written, one line that names what is wrong.
    """
    real = SystemClock()
    began_s = real.now_s()
    job_id = options.job or f"run-{datetime.fromtimestamp(began_s, UTC):%Y%m%d-%H%M%S}"
    directory = (options.directory or Path("runs") / job_id).absolute()
    variables = _variables(options, directory)
    check_settings(variables, options.scale, FLOW_LATENCY_S)
    progress = Progress(quiet)
    market = _market(options, directory)
    spec = job_spec(options, job_id, market)
    world = LocalWorld(directory, market.path, options.catalog, market.start_s, options.scale, 120, options.endpoint)
    progress.say(f"job {job_id}: starting a Prefect API and a market on this machine; state in {directory}")
    with local_world(world, variables) as clock:
        progress.say(f"Prefect UI at {world.prefect.ui_url}")
        try:
            result = _Run(spec, clock, progress).to_the_end()
        finally:
            progress.close()
    result["real_seconds"] = real.now_s() - began_s
    progress.console.print(result_table(result))
    return result


def _variables(options: RunOptions, directory: Path) -> dict[str, str]:
    """Return the settings that this run makes, for itself and for what it starts."""
    variables = {
        "PROTEUS_DATABASE_URL": options.database or f"sqlite:///{directory / 'state.db'}",
        "PROTEUS_BLOB_URL": (directory / "blobs").as_uri(),
        "PROTEUS_POLL_S": str(max(5.0, 0.2 * options.scale)),
        "PROTEUS_NOTICE_S": "120",
    }
    if options.catalog is not None:
        variables["PROTEUS_CATALOG"] = str(options.catalog)
    return variables


def _market(options: RunOptions, directory: Path) -> MarketFile:
    if options.reliable < 1:
        raise InputError(f"--reliable {options.reliable}: a job needs a machine that lasts; give at least 1")
    if options.prices is not None:
        return given_market(options.prices, options.markets, options.catalog, options.hours)
    check_market_names(options.markets)
    directory.mkdir(parents=True, exist_ok=True)
    market = generated_market(directory / "prices.csv.gz", options.seed, options.hours, history_days=14)
    return market


def job_spec(options: RunOptions, job_id: str, market: MarketFile) -> Any:
    """Return the job that the options describe: `mlr` on the digits, with features to compute on."""
    from pydantic import ValidationError

    from tasks.spec import JobSpec

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
            "allocation_vcpus": 4,
            "max_vcpus": options.max_vcpus,
            "policy": options.policy,
        },
    }
    try:
        return JobSpec.model_validate(record)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InputError(f"job {job_id}: {where}: {first['msg']} (is {first['input']!r})") from None


class _Run:
    """One job, its ticks, and what the terminal shows, each in a thread of its own."""

    def __init__(self, spec: Any, clock: ScaledClock, progress: Progress) -> None:
        self._spec = spec
        self._clock = clock
        self._progress = progress
        self._done = threading.Event()

    def to_the_end(self) -> dict[str, Any]:
        """Train, tick and show until the training has ended; then let the market's clock run out."""
        from flows.train import train
        from tasks.report import snapshot, summary

        with ThreadPoolExecutor(max_workers=2, thread_name_prefix="flow") as pool:
            training = pool.submit(_call, partial(train, self._spec))
            ticking = pool.submit(self._tick_until_done)
            try:
                while not training.done() and not ticking.done():
                    self._show(snapshot)
                    wait([training, ticking], timeout=_LOOK_S, return_when=FIRST_EXCEPTION)
            finally:
                self._done.set()
            _raise_first(training, ticking)
        self._progress.close()
        self._progress.say("trained; the market's clock jumps over the paid rest of the last hours")
        self._run_out()
        return summary(self._spec.job_id)

    def _tick_until_done(self) -> None:
        """Call the tick at every decision point, and the handler of every notice, until the training has ended."""
        from flows.allocation_tick import allocation_tick
        from flows.handle_eviction import handle_eviction
        from tasks.clocks import next_tick_s
        from tasks.notices import seen_notices

        handled: set[str] = set()
        tick_s = next_tick_s()
        while not self._clock.wait_until(
            min(tick_s, self._clock.now_s() + _NOTICE_LOOK_S * self._clock.scale), self._done
        ):
            for notice in seen_notices(self._spec.job_id):
                if notice.allocation_id not in handled:
                    handled.add(notice.allocation_id)
                    _call(partial(handle_eviction, notice))
            if self._clock.now_s() >= tick_s:
                _call(partial(allocation_tick, self._spec.job_id))
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


def _raise_first(*futures: "Future[Any]") -> None:
    for future in futures:
        if future.done() and (error := future.exception()) is not None:
            raise error
