"""The store against a simple model: written entries are present once, also after a restart of the process."""

import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from proteus_spot.bidding.market.model import Allocation, EndCause, Market
from proteus_spot.infra.state.records import (
    JOB_TRANSITIONS,
    Entry,
    IllegalTransition,
    IntentConflict,
    IntentState,
    JobState,
    JournalConflict,
    LedgerKind,
    LedgerLine,
)
from proteus_spot.infra.state.store import Store
from tests.support.postgres import PostgresServer

JOBS = st.sampled_from(["a", "b"])
ORDERS = st.sampled_from(["o1", "o2", "o3"])
OUTCOMES = st.sampled_from([IntentState.DONE, IntentState.REFUSED, IntentState.ABANDONED])
MARKET = Market("c4.large", "us-east-1a")


class StoreMachine(RuleBasedStateMachine):
    """Two jobs, three orders, two claimants; `now_s` only grows."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.url = self.new_database()
        self.store = Store.open(self.url)
        self.now_s = 0.0
        self.jobs = {"a": JobState.STARTING, "b": JobState.STARTING}
        self.journal: dict[str, list[int]] = {"a": [], "b": []}
        self.intents: dict[str, tuple[str, IntentState]] = {}
        self.allocations: dict[str, tuple[int, EndCause] | None] = {}
        self.instance_ends: dict[str, tuple[int, EndCause]] = {}
        self.ledger: dict[str, int] = {}
        self.claim_of: tuple[str, float] | None = None
        for job_id in self.jobs:
            self.store.jobs.create_job(job_id, {"of": job_id}, 0.0)

    def new_database(self) -> str:
        """Return the URL of an empty database, which lives until the stack is closed."""
        return f"sqlite:///{Path(self.stack.enter_context(tempfile.TemporaryDirectory()))}/state.db"

    def teardown(self) -> None:
        self.store.close()
        self.stack.close()

    @rule()
    def begin_anew(self) -> None:
        self.store.close()
        self.store = Store.open(self.url)

    @rule(seconds=st.floats(0, 100))
    def time_passes(self, seconds: float) -> None:
        self.now_s += seconds

    @rule(job_id=JOBS, state=st.sampled_from(JobState))
    def move(self, job_id: str, state: JobState) -> None:
        held = self.jobs[job_id]
        if state is held or state in JOB_TRANSITIONS[held]:
            assert self.store.jobs.move_job(job_id, state, self.now_s).state is state
            self.jobs[job_id] = state
        else:
            with pytest.raises(IllegalTransition):
                self.store.jobs.move_job(job_id, state, self.now_s)

    @rule(job_id=JOBS, off=st.integers(-2, 2), values=st.lists(st.integers(), max_size=3))
    def append(self, job_id: str, off: int, values: list[int]) -> None:
        known = self.journal[job_id]
        entries = [Entry("event", self.now_s, self.now_s, {"value": value}) for value in values]
        if off:
            with pytest.raises(JournalConflict):
                self.store.journals.append(job_id, len(known) + off, entries)
        else:
            known.extend(values)
            assert self.store.journals.append(job_id, len(known) - len(values), entries) == len(known)

    @rule(order_id=ORDERS, job_id=JOBS, kind=st.sampled_from(["acquire", "renew"]))
    def plan(self, order_id: str, job_id: str, kind: str) -> None:
        what = f"{job_id}/{kind}"
        held, state = self.intents.get(order_id, (what, IntentState.PLANNED))
        if held == what:
            assert self.store.purchases.plan(order_id, job_id, kind, f"t-{order_id}", {}, self.now_s).state is state
            self.intents[order_id] = (what, state)
        else:
            with pytest.raises(IntentConflict):
                self.store.purchases.plan(order_id, job_id, kind, f"t-{order_id}", {}, self.now_s)

    @precondition(lambda self: self.intents)
    @rule(data=st.data(), state=OUTCOMES)
    def settle(self, data: st.DataObject, state: IntentState) -> None:
        order_id = data.draw(st.sampled_from(sorted(self.intents)))
        what, held = self.intents[order_id]
        if held in (IntentState.PLANNED, state) or state is IntentState.DONE:  # machines that are found correct it
            self.store.purchases.settle(order_id, state, {"by": "market"}, self.now_s)
            self.intents[order_id] = (what, state)
        else:
            with pytest.raises(IllegalTransition):
                self.store.purchases.settle(order_id, state, {}, self.now_s)

    @rule(order_id=ORDERS)
    def buy(self, order_id: str) -> None:
        allocation = Allocation(f"x-{order_id}", MARKET, 1, 100, bid_micros=1)
        record = self.store.purchases.record_allocation("a", order_id, allocation, ["i-1"])
        assert record.alive == (self.allocations.setdefault(f"x-{order_id}", None) is None)

    @precondition(lambda self: self.allocations)
    @rule(data=st.data(), at_s=st.integers(90, 110), cause=st.sampled_from(EndCause))
    def end(self, data: st.DataObject, at_s: int, cause: EndCause) -> None:
        name = data.draw(st.sampled_from(sorted(self.allocations)))
        if self.allocations[name] in (None, (at_s, cause)) and at_s >= 100:
            self.store.purchases.end_allocation(name, at_s, cause)
            self.allocations[name] = (at_s, cause)
        else:
            with pytest.raises(IllegalTransition):
                self.store.purchases.end_allocation(name, at_s, cause)

    @precondition(lambda self: self.allocations)
    @rule(data=st.data(), at_s=st.integers(100, 110), cause=st.sampled_from(EndCause))
    def end_instance(self, data: st.DataObject, at_s: int, cause: EndCause) -> None:
        name = data.draw(st.sampled_from(sorted(self.allocations)))
        record = self.store.purchases.record_instance_ends(name, {"i-1": (at_s, cause)})
        if self.allocations[name] is None:
            self.instance_ends.setdefault(name, (at_s, cause))
        assert record.instance_ends.get("i-1") == self.instance_ends.get(name)

    @precondition(lambda self: self.allocations)
    @rule(data=st.data(), hour=st.integers(0, 2), refund=st.booleans(), amount=st.integers(0, 2**40))
    def book(self, data: st.DataObject, hour: int, refund: bool, amount: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.allocations)))
        kind, signed = (LedgerKind.REFUND, -amount) if refund else (LedgerKind.CHARGE, amount)
        line = LedgerLine("a", name, hour, kind, 100, amount, signed)
        self.store.purchases.add_lines([line])
        self.ledger.setdefault(line.entry_id, signed)

    @rule(holder=st.sampled_from(["p", "q"]), ttl_s=st.sampled_from([-1.0, 1e6]))
    def claim(self, holder: str, ttl_s: float) -> None:
        free = self.claim_of is None or self.claim_of[0] == holder or self.claim_of[1] < 0
        assert self.store.claims.claim("tick", holder, ttl_s) is free
        if free:
            self.claim_of = (holder, ttl_s)

    @rule(holder=st.sampled_from(["p", "q"]))
    def release(self, holder: str) -> None:
        had = self.claim_of is not None and self.claim_of[0] == holder
        assert self.store.claims.release("tick", holder) is had
        if had:
            self.claim_of = None

    @invariant()
    def the_store_holds_what_was_written(self) -> None:
        assert {job.job_id: job.state for job in self.store.jobs.list_jobs()} == self.jobs
        for job_id, values in self.journal.items():
            read = self.store.journals.entries(job_id)
            assert [(entry.seq, entry.record["value"]) for entry in read] == list(enumerate(values))
        intents = {intent.order_id: intent for job_id in self.jobs for intent in self.store.purchases.intents(job_id)}
        held = {name: (f"{intent.job_id}/{intent.kind}", intent.state) for name, intent in intents.items()}
        assert held == self.intents
        ends = {
            record.allocation_id: (record.ended_at_s, record.end_cause)
            for record in self.store.purchases.allocations("a")
        }
        assert ends == {name: end or (None, None) for name, end in self.allocations.items()}
        assert {line.entry_id: line.amount_micros for line in self.store.purchases.ledger("a")} == self.ledger
        assert self.store.purchases.spent("a") == sum(self.ledger.values())
        assert self.store.purchases.spent("b") == 0


SETTINGS = settings(
    max_examples=20, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
StoreMachine.TestCase.settings = SETTINGS
TestStore = StoreMachine.TestCase


def test_the_same_on_postgresql(postgres: PostgresServer) -> None:
    class OnPostgres(StoreMachine):
        def new_database(self) -> str:
            return self.stack.enter_context(postgres.database())

    run_state_machine_as_test(OnPostgres, settings=SETTINGS)
