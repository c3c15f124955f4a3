"""A `train` run may die before or after any of its steps, and run again: one purchase, one training, one bill.

The market is the simulated one in this process; the controller is a stand-in that trains a clock a look, whoever looks.
The real ones, killed for real, are in tests/e2e/test_deployments.py.
"""

import asyncio
import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import update

import proteus_spot.flows.train
import proteus_spot.tasks.task_runtime
import proteus_spot.tasks.training.running_controller
from proteus_spot.bidding.market.model import Market
from proteus_spot.bidding.market.traces import Trace, TraceSet
from proteus_spot.infra.errors import InputError, JobFailed
from proteus_spot.infra.market_data.catalogs import read_catalog
from proteus_spot.infra.runtime import Runtime
from proteus_spot.infra.settings import Settings
from proteus_spot.infra.simulated_ec2.market import SimSpotMarket
from proteus_spot.infra.state.claims import ClaimTable
from proteus_spot.infra.state.records import IntentState, JobState, StoreError
from proteus_spot.infra.state.schema import claims
from proteus_spot.infra.state.store import Store
from proteus_spot.infra.storage.blobs import Blobs
from proteus_spot.infra.storage.job_paths import JobPaths
from proteus_spot.studies.job_spec import JobSpec
from proteus_spot.tasks.market.engine_journal import JobEngine
from tests.support.prefect import prefect_api

pytestmark = [pytest.mark.slow]

JOB = "dies-once"
T0 = 1464739200  # 2016-06-01T00:00:00Z
MARKET = Market("c4.large", "us-east-1a")
TRACES = TraceSet({MARKET: Trace(T0 + np.array([0, 40_000, 44_000]), np.array([20_000, 300_000, 20_000]))})
CLOCKS, RELIABLE = 4, 2
SPEC = JobSpec.model_validate(
    {
        "job_id": JOB,
        "training": {"data": "digits", "partitions": 2, "shards": 2, "clocks": CLOCKS},
        "reliable": {"count": RELIABLE, "instance_type": MARKET.instance_type, "zone": MARKET.zone},
        "transient": {"markets": [str(MARKET)], "allocation_vcpus": 2, "max_vcpus": 2, "billing": "hourly-refund"},
    }
)


class Killed(BaseException):
    """The process ends here; nothing in it gets to clean up by catching `Exception`."""


class WaitingClock:
    """Market time that moves when somebody waits for it."""

    scale = 1.0

    def __init__(self, at_s: float) -> None:
        self.at_s = at_s
        #: The state database, whose clock passes with this one.
        self.store: Store | None = None

    def now_s(self) -> float:
        return self.at_s

    def wait_until(self, at_s: float, wake: threading.Event | None = None) -> bool:
        passed_s, self.at_s = max(at_s - self.at_s, 0.0), max(self.at_s, at_s)
        if self.store is not None:
            with self.store.database.write() as connection:
                connection.execute(update(claims).values(expires_at_s=claims.c.expires_at_s - passed_s))
        return False


class Controller:
    """Stands for the job's controller: outlives every flow run, and saves the model at its last clock."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self.config: dict[str, Any] | None = None
        self.clock = 0
        self.saves = 0

    def start(self, job: dict[str, Any], *how: object) -> dict[str, Any]:
        assert self.config in (None, job), "another job"
        self.config = job
        return self._tell()

    def status(self, since_clock: int = 0) -> dict[str, Any]:
        assert self.config is not None, "asked before it was started"
        if self.clock < CLOCKS:
            self.clock += 1
            if self.clock == CLOCKS:
                self.saves += 1
                self._blobs.write_set(JobPaths(JOB).model, {"model.npz": b"model"}, self._result())
        return self._tell()

    def _result(self) -> dict[str, Any]:
        return {"job_id": JOB, "clocks": CLOCKS, "losses": [[c + 1, 1.0] for c in range(CLOCKS)]}

    def _tell(self) -> dict[str, Any]:
        done = self.clock == CLOCKS
        return {
            "job_id": JOB,
            "state": "finished" if done else "running",
            "reason": "",
            "clock": self.clock,
            "elapsed_s": float(self.clock),
            "losses": [[self.clock, 1.0]] if self.clock else [],
            "nodes": [],
            "notices": [],
            "stage": 1,
            "repeated_micro_tasks": 0,
            "result": self._result() if done else None,
        }


class Here:
    """A world of fakes behind the real Protocols, for one test."""

    def __init__(self, directory: Path, patch: pytest.MonkeyPatch) -> None:
        self.clock = WaitingClock(T0 + 2 * 86_400.0)
        catalog = read_catalog()
        self.types = catalog.at(datetime.fromtimestamp(self.clock.at_s, UTC).date(), "us-east-1")
        self.market = SimSpotMarket(TRACES, lambda market: self.types.get(market.instance_type), self.clock.now_s)
        self.store = self.clock.store = Store.open(f"sqlite:///{directory / 'state.db'}")
        self.blobs = Blobs((directory / "blobs").as_uri())
        self.controller = Controller(self.blobs)
        settings = Settings(blob_url=(directory / "blobs").as_uri(), ec2_endpoint_url="http://simulated.test")
        self.runtime = Runtime(settings, self.clock, self.store, self.blobs, self.market, catalog)
        patch.setattr(proteus_spot.tasks.task_runtime, "open_runtime", lambda: self.runtime)
        patch.setattr(
            proteus_spot.tasks.training.running_controller,
            "ControllerClient",
            lambda address, timeout_s: self.controller,
        )
        patch.setattr(
            proteus_spot.tasks.training.running_controller,
            "meet_controller",
            lambda job_id, within_s: "tcp://controller:1",
        )

    def raise_progress_limit(self, minutes: float) -> None:
        settings = self.runtime.settings.model_copy(update={"progress_minutes": minutes})
        self.runtime = replace(self.runtime, settings=settings)

    def train(self) -> dict[str, Any]:
        return asyncio.run(proteus_spot.flows.train.train(SPEC))

    def die(self, target: Any, name: str, call: int, *, after: bool) -> None:
        """Train until call number `call` of `target.name`, and die before or after it has done its work."""
        death = Death(getattr(target, name), call, after=after)
        release = ClaimTable.release
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(target, name, lambda *args, **kwargs: death(*args, **kwargs))
            # Who is killed gives no claim back.
            patch.setattr(ClaimTable, "release", lambda *args: death.came or release(*args))
            with pytest.raises(Killed):
                self.train()


class Death:
    """A function that kills whoever makes its call number `call`, before or after it has done its work."""

    def __init__(self, function: Callable[..., Any], call: int, *, after: bool) -> None:
        self._function = function
        self._left = call
        self._after = after
        self.came = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._left -= 1
        self.came = self.came or self._left == 0
        if self._left == 0 and not self._after:
            raise Killed
        answer = self._function(*args, **kwargs)
        if self._left == 0:
            raise Killed
        return answer


@pytest.fixture(scope="module", autouse=True)
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with prefect_api(tmp_path_factory.mktemp("api")):
        yield


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Here]:
    world = Here(tmp_path, monkeypatch)
    yield world
    world.store.close()


#: Every step of the flow, in order.
STEPS = (
    "check",
    "record_job",
    "ended_result",
    "prepare_code",
    "prepare_data",
    "fetch_prices",
    "open_job",
    "await_reliable_tier",
    "await_controller",
    "start_training",
    "follow",
    "close_job",
    "release_reliable_tier",
    "book_ledger",
)
#: Inside the steps: whose function, its name, and after which call of it.
TOUCHES = (
    ("market", "price_history", 1),
    ("store", "plan", 1),
    ("store", "plan", 2),
    ("market", "launch", 1),
    ("market", "launch", 2),
    ("engine", "commit", 1),
    ("engine", "commit", 2),
    ("engine", "commit", 3),
    ("engine", "commit", 4),
    ("engine", "commit", 5),
    ("controller", "start", 1),
    ("controller", "status", 2),
    ("controller", "status", CLOCKS),
    ("store", "move_job", 1),
    ("store", "move_job", 2),
    ("market", "terminate", 1),
    ("store", "add_lines", 1),
)


def check_one_of_everything(here: Here, result: dict[str, Any]) -> None:
    """Nothing was bought, trained or billed twice, and nothing is left."""
    assert result["clocks"] == CLOCKS
    assert (here.controller.clock, here.controller.saves) == (CLOCKS, 1)
    log = here.market.log()
    assert sorted(fact.order_id for fact in log) == [f"{JOB}-reliable-0", f"{JOB}-reliable-1"]
    assert not [fact for fact in log if fact.alive]
    intents = here.store.purchases.intents(JOB)
    assert [(one.order_id, one.state) for one in intents] == [
        (f"{JOB}-reliable-{n}", IntentState.DONE) for n in range(RELIABLE)
    ]
    job = here.store.jobs.job(JOB)
    assert (job.state, dict(job.result or {})["clocks"]) == (JobState.FINISHED, CLOCKS)
    assert not here.store.purchases.allocations(JOB, alive=True)
    assert here.store.purchases.spent(JOB) == RELIABLE * here.types[MARKET.instance_type].on_demand_micros


def test_undisturbed_and_again(here: Here) -> None:
    result = here.train()
    check_one_of_everything(here, result)
    assert here.train() == result  # an ended job is not trained again
    check_one_of_everything(here, result)


def test_a_job_goes_on_with_the_defaults_of_when_it_was_begun(here: Here) -> None:
    here.store.jobs.create_job(JOB, SPEC.model_dump(mode="json"), here.clock.at_s)
    written = SPEC.model_dump(exclude={"transient": {"billing"}}, exclude_unset=True)
    spec = JobSpec.model_validate(written)
    assert spec.transient.billing != "hourly-refund"
    check_one_of_everything(here, asyncio.run(proteus_spot.flows.train.train(spec)))
    assert JobEngine(JOB).refresh().holdings.opened.job.billing == "hourly-refund"


def test_bad_data_are_told_before_the_id_is_taken(here: Here, tmp_path: Path) -> None:
    data = tmp_path / "mine.csv"
    spec = JobSpec.model_validate(SPEC.model_dump() | {"training": SPEC.training.model_dump() | {"data": str(data)}})
    data.write_text("1,2,0\n3,x,1\n" * 4)
    with pytest.raises(InputError, match=r"mine\.csv: line 2: column 2 is 'x'"):
        asyncio.run(proteus_spot.flows.train.train(spec))
    assert (here.store.jobs.list_jobs(), here.market.log(), here.blobs.list()) == ([], [], [])
    data.write_text("1,2,0\n3,4,1\n" * 4)
    assert asyncio.run(proteus_spot.flows.train.train(spec))["clocks"] == CLOCKS
    data.unlink()  # who attaches needs the file no more
    assert asyncio.run(proteus_spot.flows.train.train(spec))["clocks"] == CLOCKS


def test_code_travels_before_anything_is_bought_and_an_edited_file_ends_no_job(here: Here, tmp_path: Path) -> None:
    mine = tmp_path / "kmeans.py"
    mine.write_text((Path(__file__).parents[2] / "docs" / "examples" / "kmeans.py").read_text())
    own = {"app": "kmeans:KMeans", "code": str(mine)}
    spec = JobSpec.model_validate(SPEC.model_dump() | {"training": SPEC.training.model_dump() | own})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            proteus_spot.flows.train,
            "await_reliable_tier",
            Death(proteus_spot.flows.train.await_reliable_tier, 1, after=False),
        )
        with pytest.raises(Killed):
            asyncio.run(proteus_spot.flows.train.train(spec))
    assert here.market.log() == []
    shipped = here.blobs.read_bytes(f"{JobPaths(JOB).code}/kmeans.py")
    mine.write_text(mine.read_text() + "# edited\n")
    with pytest.raises(InputError, match="job dies-once began with code"):
        asyncio.run(proteus_spot.flows.train.train(spec))
    assert not here.store.jobs.job(JOB).state.terminal
    mine.write_bytes(shipped)
    assert asyncio.run(proteus_spot.flows.train.train(spec))["clocks"] == CLOCKS
    assert here.controller.config is not None
    assert here.controller.config["code_sha256"] == hashlib.sha256(shipped).hexdigest()
    mine.unlink()
    assert asyncio.run(proteus_spot.flows.train.train(spec))["clocks"] == CLOCKS  # an ended job only tells


def test_a_job_that_failed_is_run_again_under_its_id_and_goes_on_from_where_it_was(here: Here) -> None:
    status = here.controller.status
    with pytest.MonkeyPatch.context() as patch:

        def failing(since_clock: int = 0) -> dict[str, Any]:
            told = status(since_clock)
            return told if told["clock"] < 2 else {**told, "state": "failed", "reason": "the application raised"}

        patch.setattr(here.controller, "status", failing)
        with pytest.raises(JobFailed, match="job dies-once: the application raised"):
            here.train()
    failed = here.store.jobs.job(JOB)
    assert (failed.state, failed.failure) == (JobState.FAILED, "job dies-once: the application raised")
    assert not any(fact.alive for fact in here.market.log())
    clock = here.controller.clock
    assert here.train()["clocks"] == CLOCKS
    assert here.controller.clock == CLOCKS > clock >= 2
    job = here.store.jobs.job(JOB)
    assert (job.state, job.failure) == (JobState.FINISHED, None)
    orders = [record.order_id for record in here.store.purchases.allocations(JOB)]
    assert sorted(orders) == sorted(f"{JOB}-reliable-{n}{again}" for n in range(RELIABLE) for again in ("", "-again-1"))
    assert not here.store.purchases.allocations(JOB, alive=True)
    assert here.train()["clocks"] == CLOCKS, "an ended job is not trained again"
    assert len(here.market.log()) == 2 * RELIABLE


@pytest.mark.parametrize(
    ("why", "limit", "larger"),
    [
        ("budget", "budget_usd", {"budget_usd": 9}),
        ("no progress: clock 2 was the last for 60 minutes", "PROTEUS_PROGRESS_MINUTES", {}),
    ],
)
def test_a_job_that_a_limit_has_stopped_goes_on_under_its_id_with_a_larger_one(
    here: Here, caplog: pytest.LogCaptureFixture, why: str, limit: str, larger: dict[str, Any]
) -> None:
    written = SPEC.model_dump(exclude_unset=True) | {"budget_usd": 5}
    status, model = here.controller.status, {"job_id": JOB, "clocks": 2, "stopped": why}

    def stopped(since_clock: int = 0) -> dict[str, Any]:
        told = status(since_clock)
        if told["clock"] < 2:
            return told
        here.store.jobs.request_stop(JOB, why, "a tick", here.clock.at_s)
        here.blobs.write_set(JobPaths(JOB).model, {"model.npz": b"of clock 2"}, model)
        return {**told, "state": "stopped", "result": model}

    def train(**limits: Any) -> dict[str, Any]:
        return asyncio.run(proteus_spot.flows.train.train(JobSpec.model_validate(written | limits)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(here.controller, "status", stopped)
        assert train()["clocks"] == 2
    assert here.store.jobs.job(JOB).state is JobState.STOPPED
    for spec in ({}, {"budget_usd": 5}):
        assert train(**spec)["clocks"] == 2, "nothing is bought with the same limits"
        assert f"job {JOB} was stopped: {why}; submit it with a larger {limit}" in caplog.text
        caplog.clear()
    with pytest.raises(StoreError, match=r"budget_usd: 4\.0, was 5\.0"):
        train(budget_usd=4)
    assert len(here.market.log()) == RELIABLE
    if not larger:
        here.raise_progress_limit(90)
    assert train(**larger)["clocks"] == CLOCKS
    job = here.store.jobs.job(JOB)
    assert (job.state, job.stop_why, job.spec["budget_usd"]) == (JobState.FINISHED, None, larger.get("budget_usd", 5))
    assert (here.controller.saves, len(here.market.log())) == (1, 2 * RELIABLE)
    assert not here.store.purchases.allocations(JOB, alive=True)
    assert train(**larger)["clocks"] == CLOCKS, "it is done"


def _selected(cases: Sequence[Any]) -> list[Any]:
    """Return every ninth case as it is, the others for storms: tests/storms/test_crash_points.py finds its own."""
    marks = [() if index % 9 == 0 else (pytest.mark.storm,) for index in range(len(cases))]
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=mark)
        for case, mark in zip(cases, marks, strict=True)
    ]


@pytest.mark.parametrize("step", _selected(STEPS))
def test_it_dies_before_a_step_and_runs_again(here: Here, step: str) -> None:
    here.die(proteus_spot.flows.train, step, 1, after=False)
    check_one_of_everything(here, here.train())


@pytest.mark.parametrize(("whose", "name", "call"), _selected(TOUCHES))
def test_it_dies_inside_a_step_and_runs_again(here: Here, whose: str, name: str, call: int) -> None:
    targets = {"engine": JobEngine, "store": Store}
    here.die(targets[whose] if whose in targets else getattr(here, whose), name, call, after=True)
    check_one_of_everything(here, here.train())
