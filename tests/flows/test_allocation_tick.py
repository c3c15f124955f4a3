"""Ticks under a Prefect server with authentication: the journal is read and replayed once, whatever a tick does.

A job is submitted to that server, and its automations fire.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.settings import PREFECT_API_AUTH_STRING, temporary_settings

import proteus_spot.flows.allocation_tick
import proteus_spot.tasks.market.engine_journal
from proteus_spot.bidding.economics.deadline import TimeLeft
from proteus_spot.bidding.engine.events import TickDue
from proteus_spot.bidding.engine.journal import replay
from proteus_spot.bidding.engine.orders import Lapse, Order
from proteus_spot.bidding.market.model import Tier
from proteus_spot.bidding.market.spot_market import MarketError
from proteus_spot.bidding.policies.base import Choice, Decision
from proteus_spot.flows.allocation_tick import allocation_tick
from proteus_spot.flows.automations import notifications, register
from proteus_spot.flows.cli.commands.jobs.submit import submit
from proteus_spot.flows.reap import reap
from proteus_spot.flows.train import train
from proteus_spot.infra.clock import SystemClock
from proteus_spot.infra.errors import ProteusError
from proteus_spot.infra.local_market.prefect_server import LocalPrefect
from proteus_spot.infra.simulated_ec2.faults import Fault, FaultKind
from proteus_spot.infra.state.journal_tables import JournalTables
from proteus_spot.infra.state.records import IntentState, JournalEntry
from proteus_spot.infra.storage.blobs import Blobs
from proteus_spot.infra.storage.job_paths import JobPaths
from proteus_spot.infra.storage.leases import read_lease
from proteus_spot.studies.job_spec import JobSpec
from proteus_spot.tasks.event_feed import emit_budget
from proteus_spot.tasks.market.engine_journal import JobEngine
from proteus_spot.tasks.market.job_opening import close_job
from proteus_spot.tasks.market.purchases.reliable_purchases import release_reliable_tier
from proteus_spot.tasks.market.purchases.sending import PurchaseBlocked
from proteus_spot.tasks.training.work_left import report_deadline
from tests.support.prefect import prefect_api, wait_until
from tests.support.task_runtime import BEGIN_S, MARKET, TaskRuntime, spec

pytestmark = [pytest.mark.slow]


#: The server wants it of every request: so all ticks here are ticks under a server with authentication.
AUTH = "proteus:a-secret"
#: Seconds without an event that Prefect reports, and between two of its looks; the fewest that it takes.
NO_TICK_S, LOOKS_S = 10, 5


@pytest.fixture(scope="module", autouse=True)
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPrefect]:
    with prefect_api(tmp_path_factory.mktemp("api"), AUTH) as server:
        yield server


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TaskRuntime]:
    """A job that has had forty ticks in which it could buy nothing."""
    world = TaskRuntime(tmp_path, monkeypatch)
    world.begin(spec())
    for number in range(40):
        event = TickDue(BEGIN_S + 10 * number, {MARKET: 20_000}, buy=False)
        JobEngine("job").commit(lambda engine, event=event: [event])  # type: ignore[misc]
    world.clock.at_s = BEGIN_S + 420.0
    yield world
    world.close()


class Reads:
    """What is read of the journal from now on."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.entries = 0
        self.replays = 0
        read = JournalTables.entries

        def entries(journals: JournalTables, *args: Any, **options: Any) -> list[JournalEntry]:
            found = read(journals, *args, **options)
            self.entries += len(found)
            return found

        def replayed(records: Any) -> Any:
            self.replays += 1
            return replay(records)

        patch.setattr(JournalTables, "entries", entries)
        patch.setattr(proteus_spot.tasks.market.engine_journal, "replay", replayed)


def kinds(here: TaskRuntime) -> list[str]:
    return [str(entry.record["kind"]) for entry in here.store.journals.entries("job")]


def test_a_tick_that_buys_replays_the_journal_once_and_reads_no_entry_twice(
    here: TaskRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = kinds(here)
    reads = Reads(monkeypatch)
    assert asyncio.run(allocation_tick("job")) == {"job": "acquire"}
    assert (reads.replays, reads.entries) == (1, len(before))
    assert kinds(here)[len(before) :] == ["TickDue", "Acquire", "AllocationGranted"]
    assert here.store.purchases.spent("job") > 0, "the ledger was booked and published, too"


def test_a_tick_extends_the_lease_of_every_machine_in_the_book_by_one_write_each(
    here: TaskRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    write = Blobs.write_json

    def counted(self: Blobs, name: str, value: Any) -> None:
        written.append(name)
        write(self, name, value)

    monkeypatch.setattr(Blobs, "write_json", counted)
    for _ in range(2):
        known = [fact.instance_id for fact in here.facts(spec()) if fact.alive]
        written.clear()
        asyncio.run(allocation_tick("job"))
        leases = {name: read_lease(here.runtime.blobs, "job", name).until_s for name in known}
        assert leases == dict.fromkeys(known, here.clock.at_s + 3600)
        assert sorted(name for name in written if "/leases/" in name) == sorted(map(JobPaths("job").lease, known))
        here.clock.at_s += 120
    assert len(known) == 3, "the machines that the first tick bought are in the book of the second"


def test_a_tick_that_cannot_see_the_market_extends_no_lease(here: TaskRuntime) -> None:
    asyncio.run(allocation_tick("job"))
    names = [fact.instance_id for fact in here.facts(spec()) if fact.tags["proteus:tier"] == "reliable"]
    until_s = read_lease(here.runtime.blobs, "job", names[0]).until_s
    here.clock.at_s += 120
    here.market.add_fault(Fault(FaultKind.DENIED, code="ExpiredToken"))
    with pytest.raises(MarketError):
        asyncio.run(allocation_tick("job"))
    assert read_lease(here.runtime.blobs, "job", names[0]).until_s == until_s


def test_a_tick_that_closes_the_job_replays_the_journal_once(
    here: TaskRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proteus_spot.tasks.supervision.open_jobs.saved_result", lambda job_id: {"clocks": 3})
    reads = Reads(monkeypatch)
    asyncio.run(allocation_tick("job"))
    assert reads.replays == 1
    assert here.store.jobs.job("job").state.terminal
    assert not [fact for fact in here.facts(spec()) if fact.alive]


def test_what_another_writer_enters_between_two_steps_is_read_and_nothing_else(
    here: TaskRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    length = len(kinds(here))
    reads = Reads(monkeypatch)
    launch = here.market.launch

    def launched(request: Any) -> Any:
        facts = launch(request)
        JobEngine("job").commit(lambda engine: [TickDue(BEGIN_S + 421, {MARKET: 20_000}, buy=False)])
        return facts

    monkeypatch.setattr(here.market, "launch", launched)
    assert asyncio.run(allocation_tick("job")) == {"job": "acquire"}
    assert reads.replays == 2, "the tick's own, and the other writer's"
    assert reads.entries == length + (length + 2) + 1, "of the other's entries each is read once by the tick"
    assert kinds(here)[length:] == ["TickDue", "Acquire", "TickDue", "AllocationGranted"]


def test_a_purchase_that_was_answered_since_it_was_ordered_is_not_made(
    here: TaskRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    carry_out = proteus_spot.flows.allocation_tick.carry_out

    def carried_out(job_engine: JobEngine, order: Order) -> None:
        """Close the job first, as its own flow does when the training fails, and carry the order out."""
        close_job(JobEngine("job"), None, "the training failed")
        release_reliable_tier(JobEngine("job"))
        carry_out(job_engine, order)

    monkeypatch.setattr(proteus_spot.flows.allocation_tick, "carry_out", carried_out)
    assert asyncio.run(allocation_tick("job")) == {"job": "acquire"}
    assert [fact.bid_micros for fact in here.market.log()] == [None], "the reliable machine alone was bought"
    states = {intent.order_id: intent.state for intent in here.store.purchases.intents("job")}
    assert states["job-buy-0"] is IntentState.ABANDONED


def test_allocations_that_end_in_one_tick_are_drained_and_let_go_together(
    here: TaskRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = spec("small", allocation_vcpus=2)
    here.begin(small)
    for _ in range(2):
        here.tick(small)
        here.clock.at_s += 60.0
    held = [record for record in here.store.purchases.allocations("small") if record.allocation.tier is Tier.TRANSIENT]
    assert len(held) == 2
    decision, soon_s = Decision(Choice.LAPSE, "a test", 1.0), int(here.clock.at_s) + 60
    lapses = [Lapse(record.allocation_id, 1, soon_s, decision) for record in held]
    later = Lapse("small-reliable-0", 1, soon_s + 3000, decision)
    monkeypatch.setattr(proteus_spot.flows.allocation_tick, "decide", lambda *_, **__: [*lapses, later])
    drained: list[list[str]] = []
    monkeypatch.setattr(
        proteus_spot.flows.allocation_tick, "drain", lambda job, names, within_s: drained.append(list(names))
    )
    ended: list[list[str]] = []
    terminate = here.market.terminate
    monkeypatch.setattr(here.market, "terminate", lambda ids: (ended.append(list(ids)), terminate(ids)))
    asyncio.run(allocation_tick("small"))
    machines = sorted(name for record in held for name in record.instance_ids)
    assert [sorted(names) for names in drained] == [sorted(names) for names in ended] == [machines]


def test_prefect_neither_copies_nor_stores_nor_prints_the_engine(
    here: TaskRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> Any:
        raise AssertionError("the engine is a task's argument and nothing else")

    for name in ("__reduce_ex__", "__getstate__", "__deepcopy__", "__copy__", "__hash__", "__eq__", "__repr__"):
        monkeypatch.setattr(JobEngine, name, refuse, raising=False)
    assert asyncio.run(allocation_tick("job")) == {"job": "acquire"}


def test_ticks_that_stop_and_orphans_that_are_found_fire_their_automations(here: TaskRuntime) -> None:
    seen = ("proteus: no tick", "proteus: orphan found")
    bought = here.market.request_of(here.facts(spec())[0].instance_id)
    tags = {**bought.tags, "proteus:job": "unknown", "proteus:order": "stray"}
    (stray,) = here.market.launch(replace(bought, token="stray", tags=tags))
    JobEngine("job").commit(lambda engine: [TickDue(BEGIN_S + 420, {MARKET: 20_000}, buy=False)])  # it is no younger
    here.clock.at_s += 2 * here.runtime.settings.tick_s
    with get_client(sync_client=True) as client:
        for automation in notifications(None, no_tick_s=NO_TICK_S):
            register(client, automation)
        registered_s = SystemClock().now_s()
        assert not any(_fired(client, name) for name in seen)
        assert asyncio.run(reap()) == [stray.instance_id]
        SystemClock().wait_until(registered_s + LOOKS_S + 1)
        asyncio.run(allocation_tick("job"))  # the last
        ticked_s = SystemClock().now_s()
        wait_until(lambda: len(_fired(client, seen[1])) == 1, "the automation that tells of an orphan", 20)
        wait_until(
            lambda: any(at_s > ticked_s for at_s in _fired(client, seen[0])), "the automation that misses a tick", 40
        )
        first_s = min(at_s for at_s in _fired(client, seen[0]) if at_s > ticked_s)
        assert first_s > ticked_s + NO_TICK_S - 1, "the last tick has put it off"


def test_what_money_and_time_are_in_danger_of_fires_its_automation_once(here: TaskRuntime) -> None:
    names = [f"proteus: {what}" for what in ("budget at 80 %", "deadline at risk", "launch failed")]
    job, now_s = here.store.jobs.job("job"), int(here.clock.at_s)
    here.market.add_fault(Fault(FaultKind.DENIED, operation="launch", code="UnauthorizedOperation"))
    in_time = TimeLeft(deadline_s=now_s + 10_000, clocks=10, clocks_per_vcpu_s=1.0, overhead_s=0.0)
    late = replace(in_time, deadline_s=now_s + 1)
    with get_client(sync_client=True) as client:
        for automation in notifications(None):
            register(client, automation)
        registered_s = SystemClock().now_s()
        SystemClock().wait_until(registered_s + LOOKS_S + 1)
        report_deadline(spec(), in_time)
        report_deadline(spec(), None)
        emit_budget(job, 7, 10)
        for _ in range(2):
            report_deadline(spec(), late)
            emit_budget(job, 8, 10)
            with pytest.raises(PurchaseBlocked, match="UnauthorizedOperation"):
                asyncio.run(allocation_tick("job"))
        for name in names:
            wait_until(lambda name=name: len(_fired(client, name)) > 0, f"the automation {name}", 20)  # type: ignore[misc]
        assert {name: len(_fired(client, name)) for name in names} == dict.fromkeys(names, 1)


def _fired(client: SyncPrefectClient, name: str) -> list[float]:
    """When an automation has fired, by the event feed, the first time first."""
    (automation,) = client.read_automations_by_name(name)
    wanted = {
        "event": {"name": ["prefect.automation.triggered"]},
        "resource": {"id": [f"prefect.automation.{automation.id}"]},
    }
    found: list[Any] = client.request("POST", "/events/filter", json={"filter": wanted}).json()["events"]
    return sorted(datetime.fromisoformat(one["occurred"]).timestamp() for one in found)


def test_a_job_is_submitted_to_a_server_with_authentication_and_to_no_other_user(
    here: TaskRuntime, api: LocalPrefect, tmp_path: Path
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(f"job_id: asked\ntraining: {{clocks: 3}}\ntransient: {{markets: [{MARKET}]}}\n")
    with get_client(sync_client=True) as client:
        client.create_deployment(client.create_flow(train), "train")
        with temporary_settings(restore_defaults={PREFECT_API_AUTH_STRING}):
            refused = CliRunner().invoke(submit, [str(file)])
        assert isinstance(refused.exception, ProteusError)
        assert "401 Unauthorized" in str(refused.exception)
        done = CliRunner().invoke(submit, [str(file)])
        assert done.exit_code == 0, done.output
        (run,) = [run for run in client.read_flow_runs() if run.name == "asked"]
    assert f"its run:  {api.ui_url}/runs/flow-run/{run.id}\n" in done.output
    assert f"its page: {api.ui_url}/artifacts/artifact/" in done.output
    assert run.tags == ["job:asked"]
    begun = JobSpec.model_validate(run.parameters["spec"])
    assert (begun.job_id, begun.reliable.zone) == ("asked", MARKET.zone)
    assert AUTH not in done.output + str(run.parameters)
