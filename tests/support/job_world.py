"""A whole job on one clock: the honest market, the real database and blobs, a controller, machines with leases, flows.

Time stands still while a flow process works, and moves in steps between: the world then carries out what is due (the
market's changes, ends of leases, the training, ticks, renewals, the reaper), each at its time.
"""

import json
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from types import FunctionType
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from sqlalchemy import literal

import proteus_spot.flows.allocation_tick
import proteus_spot.flows.handle_eviction
import proteus_spot.flows.reap
import proteus_spot.flows.renew_hour
import proteus_spot.flows.train
import proteus_spot.infra.state.claims
import proteus_spot.infra.storage.leases
import proteus_spot.tasks.reports.publish
import proteus_spot.tasks.task_runtime
import proteus_spot.tasks.training.running_controller
from proteus_spot.bidding.market.model import EndCause, InstanceFact, InstanceState, Market
from proteus_spot.bidding.market.money import Micros
from proteus_spot.bidding.market.traces import Trace, TraceSet
from proteus_spot.infra.market_data.catalogs import read_catalog
from proteus_spot.infra.nodes.controller_client import ControllerClient, wait_rendezvous
from proteus_spot.infra.runtime import Runtime
from proteus_spot.infra.settings import Settings
from proteus_spot.infra.simulated_ec2.market import SimSpotMarket
from proteus_spot.infra.simulated_ec2.rules.behaviour import HONEST, Ec2Behaviour
from proteus_spot.infra.simulated_ec2.stored_market import read_state, write_state
from proteus_spot.infra.state.records import StoreError
from proteus_spot.infra.state.store import Store
from proteus_spot.infra.storage.blobs import BlobError, BlobMissing, Blobs
from proteus_spot.infra.storage.leases import FIRST_S, read_lease
from proteus_spot.studies.job_spec import JobSpec
from proteus_spot.tasks.job_ends import request_stop
from proteus_spot.tasks.market.eviction_notices import EvictionNotice
from proteus_spot.tasks.market.renewals import HourEnd
from tests.support.flow_processes import Boundary, Killed, Process, flow_modules, run_coroutine
from tests.support.job_training import Training
from tests.support.market_bill import bill_of, by_hour, by_second

DAY_S = 86_400
T0 = 1464739200  # 2016-06-01T00:00:00Z
#: The job begins here: two days of history lie before it.
BEGIN_S = T0 + 2 * DAY_S
MARKETS = (Market("c4.large", "us-east-1a"), Market("m4.large", "us-east-1b"))
TICK_S = 600
LEASE_S = 3600
#: Seconds between two looks of the world at what is due, and from launch to a node that answers.
STEP_S = 60
BOOT_S = 60


class Clock:
    """Market time as the head's clock shows it; a wait of a flow process is the world's to spend.

    Attributes
    ----------
    at_s : the world's time.
    ahead_s : seconds by which the head's clock is ahead of it.
    """

    scale = 1.0

    def __init__(self, at_s: float) -> None:
        self.at_s = at_s
        self.ahead_s = 0.0
        self.spend: Callable[[float], None] = lambda at_s: None

    def now_s(self) -> float:
        return self.at_s + self.ahead_s

    def wait_until(self, at_s: float, wake: threading.Event | None = None) -> bool:
        if at_s > self.now_s():
            self.spend(at_s - self.ahead_s)
        return wake is not None and wake.is_set()


def spec(job_id: str = "job", clocks: int = 45, **fields: Any) -> JobSpec:
    """A job of an hour and a half with one reliable machine, which may hold two small spot machines."""
    transient = {
        "markets": [str(market) for market in MARKETS],
        "allocation_vcpus": 4,
        "max_vcpus": 4,
        "policy": "proteus",
        "billing": "hourly-refund",
        **fields.pop("transient", {}),
    }
    return JobSpec.model_validate(
        {
            "job_id": job_id,
            "training": {"clocks": clocks, "partitions": 1, "shards": 1},
            "reliable": {"count": 1, "instance_type": MARKETS[0].instance_type, "zone": MARKETS[0].zone},
            "transient": transient,
            **fields,
        }
    )


#: The attributes of a store that have its calls.
_TABLES = ("owner", "jobs", "journals", "purchases", "markets", "claims")


class _MayFail:
    """What a head uses, with every call of it failing while `failing` returns an error."""

    def __init__(self, inner: Any, failing: Callable[[], Exception | None]) -> None:
        self._inner, self._failing = inner, failing

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if not callable(value):
            return _MayFail(value, self._failing) if name in _TABLES else value

        def call(*args: Any, **kwargs: Any) -> Any:
            error = self._failing()
            if error is not None:
                raise error
            return value(*args, **kwargs)

        return call


class JobWorld:
    """See the module.

    Parameters
    ----------
    directory : of the database and the blobs.
    patch : takes Prefect away for the time of the test.
    boundary : counts the calls of flow processes, and may kill one.
    job : the job.
    behaviour : of the market.
    taken_after_s : the price of the first market passes every bid so long after the job's begin; None: never.
    seed : of the market's lags.
    second_micros : price of the second market; that of the first is 20,000.
    """

    def __init__(
        self,
        directory: Path,
        patch: pytest.MonkeyPatch,
        boundary: Boundary,
        job: JobSpec | None = None,
        behaviour: Ec2Behaviour = HONEST,
        taken_after_s: int | None = 2400,
        seed: str = "",
        second_micros: Micros = 30_000,
    ) -> None:
        self.boundary = boundary
        self.spec = spec() if job is None else job
        self.job_id = self.spec.job_id
        self.clock = Clock(float(BEGIN_S))
        self.clock.spend = self._spend
        rows = [(T0, 20_000)]
        if taken_after_s is not None:
            rows += [(BEGIN_S + taken_after_s, 900_000), (BEGIN_S + taken_after_s + 1800, 20_000)]
        times, prices = (np.array(column) for column in zip(*rows, strict=True))
        traces = TraceSet(
            {MARKETS[0]: Trace(times, prices), MARKETS[1]: Trace(np.array([T0]), np.array([second_micros]))}
        )
        catalog, day = read_catalog(), datetime.fromtimestamp(BEGIN_S, UTC).date()
        self.market = SimSpotMarket(
            traces, lambda market: catalog.find(market, day), lambda: self.now_s, behaviour=behaviour, seed=seed
        )
        url = f"sqlite:///{directory / 'state.db'}"
        self.store = Store.open(url)
        (directory / "blobs").mkdir(exist_ok=True)
        self.blobs = Blobs((directory / "blobs").as_uri())
        settings = Settings(
            blob_url=(directory / "blobs").as_uri(),
            database_url=url,
            ec2_endpoint_url="http://simulated.test",
            tick_s=TICK_S,
            renewal_lead_s=2 * TICK_S,
        )
        #: Whether the bucket and the database do not answer the head; nodes still reach the bucket.
        self.bucket_fails = self.database_fails = False
        store: Any = _MayFail(self.store, lambda: StoreError("the database is away") if self.database_fails else None)
        blobs: Any = _MayFail(self.blobs, lambda: BlobError("the bucket is away") if self.bucket_fails else None)
        self.runtime = Runtime(settings, self.clock, store, blobs, boundary.of_market(self.market), catalog)
        self._database = directory / "state.db"
        self.training = self.made_training()
        self.ticks_run = True
        #: How often the event of a notice arrives, and how late.
        self.notice_copies, self.notice_delay_s = 1, 5.0
        self.ended_by_lease: list[str] = []
        self.failures: list[Process] = []
        self.faults: list[str] = []
        #: Machines of another owner in the same account.
        self.others: set[str] = set()
        #: What happens to machines, at market seconds, in order.
        self.events: list[tuple[float, Callable[[JobWorld], None]]] = []
        self._bookings: dict[str, tuple[float, HourEnd]] = {}
        self._notices: list[tuple[float, EvictionNotice]] = []
        self._noticed: set[str] = set()
        self._unbooked: dict[str, float] = {}
        self._in_step = False
        self._patch(patch, directory)

    def _patch(self, patch: pytest.MonkeyPatch, directory: Path) -> None:
        patch.setattr(proteus_spot.tasks.task_runtime, "open_runtime", lambda: self.runtime)
        patch.setattr(proteus_spot.infra.state.claims, "now_s", lambda connection: literal(self.clock.now_s()))
        patch.setattr(proteus_spot.infra.storage.leases, "_WRITERS", 1)  # in a fixed order
        patch.setattr(proteus_spot.tasks.training.running_controller, "_FOLLOW_S", float(TICK_S) / 2)
        patch.setattr(proteus_spot.tasks.reports.publish, "show_job", lambda job_id: None)
        patch.setattr(proteus_spot.flows.train, "show_job", lambda job_id: None)
        doubles = {ControllerClient: self.training.client, wait_rendezvous: self.training.find}
        for module in flow_modules():
            for name, value in list(vars(module).items()):
                if isinstance(value, type | FunctionType) and value in doubles:
                    patch.setattr(module, name, doubles[value])
        for name in (
            "proteus_spot.tasks.market.renewals",
            "proteus_spot.tasks.reports.publish",
            "proteus_spot.tasks.market.tick",
        ):
            patch.setattr(f"{name}.SystemClock", lambda: self.clock)
        self.boundary.watch_database(self.store.database.engine)
        self.boundary.watch_files(directory, patch)
        answers = {"run_deployment": self._book, "create_progress_artifact": lambda *args, **more: UUID(int=1)}
        self.boundary.watch_prefect(patch, answers, lambda: self.clock.wait_until(self.now_s + 1))

    def made_training(self) -> Any:
        """The controller of the job, as `Training` is."""
        return Training(self, self.spec.training.clocks or 0)

    # What lives

    @property
    def now_s(self) -> float:
        return self.clock.at_s

    def living(self) -> list[InstanceFact]:
        """The machines of this world's owner that live by the market's own log."""
        alive = (InstanceState.PENDING, InstanceState.RUNNING)
        return [fact for fact in self.ours() if fact.state in alive]

    def ours(self) -> list[InstanceFact]:
        """Every machine that this world's owner ever bought, by the market's own log."""
        return [fact for fact in self.market.log() if fact.instance_id not in self.others]

    def is_up(self, fact: InstanceFact) -> bool:
        """Whether the node on a machine has booted."""
        return fact.state is InstanceState.RUNNING and self.now_s - fact.launched_at_s >= BOOT_S

    # Flow processes

    def train(self) -> Process:
        """Run `train`, or run it again."""
        return self._run("train", lambda: run_coroutine(proteus_spot.flows.train.train.fn(self.spec)))

    def tick(self) -> Process:
        return self._run("tick", lambda: run_coroutine(proteus_spot.flows.allocation_tick.allocation_tick.fn()))

    def reap(self) -> Process:
        return self._run("reap", lambda: run_coroutine(proteus_spot.flows.reap.reap.fn()))

    def stop(self) -> Process:
        """Ask for the job's end, as `proteus stop` does."""
        return self._run("stop", lambda: request_stop(self.job_id, "asked", by="a user"))

    def _run(self, name: str, flow: Callable[[], Any]) -> Process:
        process = self.boundary.run(name, flow)
        if process.error is not None:
            self.failures.append(process)
        return process

    def _book(self, name: str, *, parameters: dict[str, Any], scheduled_time: datetime, **more: Any) -> None:
        key = more["idempotency_key"]
        self._bookings.setdefault(key, (scheduled_time.timestamp(), HourEnd(**parameters["hour_end"])))

    # Time

    def _spend(self, at_s: float) -> None:
        process = self.boundary.process
        if process is not None and process.name == "train" and not self._in_step:
            self.advance(at_s)
        else:
            self.clock.at_s = max(self.clock.at_s, at_s)

    def advance(self, until_s: float) -> None:
        """Let time pass, with all that is due."""
        while self.now_s < until_s:
            next_s = min((self.now_s // STEP_S + 1) * STEP_S, until_s)
            passed_s = next_s - self.now_s
            self.clock.at_s = next_s
            if next_s % STEP_S == 0:
                self._step(passed_s)
            process = self.boundary.process
            if process is not None and process.dead:
                raise Killed  # all processes died, this one while it waited

    def _step(self, passed_s: float) -> None:
        was, self._in_step = self._in_step, True
        try:
            with self.boundary.outside():
                self.market.advance()
                while self.events and self.events[0][0] <= self.now_s:
                    self.events.pop(0)[1](self)
                self._obey_leases()
                self.training.work(passed_s)
                self._see_notices()
            if self.ticks_run:
                self._run_due()
            self._look_after_book()
        finally:
            self._in_step = was

    def _run_due(self) -> None:
        for key, (at_s, hour_end) in list(self._bookings.items()):
            if at_s <= self.clock.now_s():
                del self._bookings[key]
                self._run(
                    "renew-hour", lambda end=hour_end: run_coroutine(proteus_spot.flows.renew_hour.renew_hour.fn(end))
                )
        for at_s, notice in list(self._notices):
            if at_s <= self.now_s:
                self._notices.remove((at_s, notice))
                self._run(
                    "handle-eviction",
                    lambda one=notice: run_coroutine(proteus_spot.flows.handle_eviction.handle_eviction.fn(one)),
                )
        if self.now_s % TICK_S == 0:
            self.tick()
        if self.now_s % TICK_S == TICK_S / 2:
            self.reap()

    def _obey_leases(self) -> None:
        """End every machine whose lease has ended, as the guard on it does."""
        for fact in self.living():
            try:
                until_s = read_lease(self.blobs, fact.tags["proteus:job"], fact.instance_id).until_s
            except BlobMissing:
                until_s = fact.launched_at_s + FIRST_S
            except BlobError as error:
                raise AssertionError(f"a lease cannot be read: {error}") from error
            if self.now_s >= until_s:
                self.market.shut_down(fact.instance_id)
                self.ended_by_lease.append(fact.instance_id)

    def _see_notices(self) -> None:
        """Have the reliable tier report the notices of machines, as its nodes do: one event an allocation."""
        for fact in self.living():
            if fact.notice_at_s is None or fact.instance_id in self._noticed:
                continue
            self._noticed.add(fact.instance_id)
            notice = EvictionNotice(
                job_id=self.job_id,
                allocation_id=fact.tags["proteus:order"],
                instance_id=fact.instance_id,
                takes_at_s=fact.notice_at_s,
            )
            self._notices += [(self.now_s + self.notice_delay_s, notice)] * self.notice_copies

    def _look_after_book(self) -> None:
        """Note machines that live outside of the book for longer than a first lease, or an hour after the job's end."""
        with self.boundary.outside():
            job = self.store.jobs.find_job(self.job_id)
            records = [] if job is None else self.store.purchases.allocations(self.job_id, alive=True)
            held = {name for record in records for name in record.living_ids}
            living = {fact.instance_id for fact in self.living()}
        for name in living - held:
            since_s = self._unbooked.setdefault(name, self.now_s)
            if self.now_s - since_s > FIRST_S + STEP_S:
                self.faults.append(f"{name} lives outside of the book since {since_s - BEGIN_S:.0f} s")
        for name in set(self._unbooked) - (living - held):
            del self._unbooked[name]
        if job is not None and job.ended_at_s is not None and self.now_s > job.ended_at_s + 3600 + STEP_S and living:
            self.faults.append(f"{sorted(living)} live {self.now_s - job.ended_at_s:.0f} s after the job's end")

    # The world in a file, for processes that are killed for real

    def save(self, directory: Path) -> None:
        """Write what is neither in the database nor in the blobs."""
        training = self.training
        record = {
            "now_s": self.now_s,
            "training": [training.machine, training.state, training.clock, training.saved, training.reason],
            "bookings": {key: [at_s, end.model_dump()] for key, (at_s, end) in self._bookings.items()},
        }
        (directory / "world.json").write_text(json.dumps(record))
        write_state(directory / "market.json", self.market.state("digest"))

    def load(self, directory: Path) -> None:
        """Go on from what `save` wrote."""
        record = json.loads((directory / "world.json").read_text())
        self.clock.at_s = record["now_s"]
        training = self.training
        training.machine, training.state, training.clock, training.saved, training.reason = record["training"]
        self._bookings = {key: (at_s, HourEnd(**end)) for key, (at_s, end) in record["bookings"].items()}
        state = read_state(directory / "market.json")
        assert state is not None
        self.market.restore(state)

    # A backup of the database

    def copy_database(self, copy: Path) -> None:
        """Write a backup of the database."""
        self._copy(self._database, copy)

    def restore_database(self, copy: Path) -> None:
        """Bring the database back from a backup; no process of the head lives through that."""
        for process in self.boundary.stack:
            if process is not None:
                process.dead = True
        self._copy(copy, self._database)
        self.store.database.engine.dispose()

    @staticmethod
    def _copy(source: Path, target: Path) -> None:
        with closing(sqlite3.connect(source)) as one, closing(sqlite3.connect(target)) as other:
            one.backup(other)

    # What must hold

    def bought_twice(self) -> dict[str, int]:
        """The orders that were carried out more than once, by the market's log: purchases by order."""
        purchases: dict[str, set[tuple[str, int]]] = {}
        for fact in self.ours():
            purchases.setdefault(fact.tags["proteus:order"], set()).add((fact.token, fact.launched_at_s))
        return {order: len(found) for order, found in purchases.items() if len(found) > 1}

    def ended_unseen(self) -> dict[str, EndCause | None]:
        """The machines that had ended, and were forgotten by the market, before anybody looked: by id, with the cause.

        No refund is known of them, and they are booked up to the end of their leases.
        """
        with self.boundary.outside():
            records = self.store.purchases.allocations(self.job_id)
        booked = {
            name: life.ended_at_s
            for record in records
            for name, life in zip(record.instance_ids, record.machines, strict=True)
        }
        facts = [fact for fact in self.ours() if fact.instance_id in booked]
        return {fact.instance_id: fact.end_cause for fact in facts if fact.ended_at_s != booked[fact.instance_id]}

    def bill(self) -> Micros:
        """What the market bills for all of it."""
        rule = by_second if self.spec.transient.billing_model.by_second else by_hour
        with self.boundary.outside():
            bill = bill_of(self.market, rule, rule)
        return sum(micros for name, micros in bill.items() if name not in self.others)
