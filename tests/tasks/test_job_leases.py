"""Leases by the tick: which machines of the book get one, until when, and what is done with alarms."""

import logging
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from pydantic import SecretStr

import proteus_spot.flows.allocation_tick
from proteus_spot.bidding.market.model import HOUR_S, Allocation, EndCause, LaunchRequest, Tier
from proteus_spot.infra.settings import Settings
from proteus_spot.infra.state.records import AllocationRecord, JobState, ObservationKind
from proteus_spot.infra.storage.alarms import Alarm, read_alarms, write_alarm
from proteus_spot.infra.storage.blobs import BlobError, BlobMissing, Blobs
from proteus_spot.infra.storage.leases import FIRST_S, Lease, read_lease
from proteus_spot.tasks.job_leases import extend_leases, leases_of
from proteus_spot.tasks.market.purchases.sending import PurchaseBlocked
from tests.support.plain_ticks import plain_tick
from tests.support.task_runtime import BEGIN_S, MARKET, TaskRuntime, plain, spec

HOOK = "https://hooks.example/secret"


@pytest.fixture
def held(here: TaskRuntime) -> TaskRuntime:
    """A job with a reliable machine and a spot allocation of two machines, 100 s after its begin."""
    here.begin(spec())
    here.tick(spec())
    here.clock.at_s = BEGIN_S + 100
    return here


def machines(held: TaskRuntime, tier: str = "") -> list[str]:
    facts = [fact for fact in held.facts(spec()) if fact.alive]
    return sorted(fact.instance_id for fact in facts if tier in ("", fact.tags["proteus:tier"]))


def lease(held: TaskRuntime, instance_id: str) -> Lease:
    return read_lease(held.runtime.blobs, "job", instance_id)


def leases(held: TaskRuntime) -> dict[str, float]:
    """Return the end of every machine's lease, in seconds after the job's begin."""
    names = held.runtime.blobs.list("jobs/job/leases")
    ids = [Path(name).stem for name in names]
    return {instance_id: lease(held, instance_id).until_s - BEGIN_S for instance_id in ids}


def test_a_tick_extends_every_machine_of_the_book_to_an_hour_from_now(held: TaskRuntime) -> None:
    assert len(machines(held)) == 3
    plain(extend_leases)("job")
    assert leases(held) == dict.fromkeys(machines(held), 100 + 3600)
    held.clock.at_s += 120
    plain(extend_leases)("job")
    assert leases(held) == dict.fromkeys(machines(held), 220 + 3600)
    (reliable,) = machines(held, "reliable")
    assert lease(held, reliable).order == "job-reliable-0"
    assert lease(held, reliable).reason == "a tick last extended it at 2016-06-03 00:03:40 UTC"
    assert not lease(held, reliable).is_last


def test_a_lease_that_the_budget_cuts_says_so(held: TaskRuntime) -> None:
    (reliable,) = machines(held, "reliable")
    plain(extend_leases)("job", lambda record: BEGIN_S + (900 if record.order_id == "job-reliable-0" else 9000))
    cut = lease(held, reliable)
    assert (cut.until_s, cut.is_cut, cut.is_last) == (BEGIN_S + 900, True, False)
    assert cut.reason == "the job's budget lasts no longer; a tick last extended it at 2016-06-03 00:01:40 UTC"
    assert {lease(held, name).is_cut for name in machines(held, "transient")} == {False}
    assert {lease(held, name).until_s for name in machines(held, "transient")} == {BEGIN_S + 100 + 3600}


def test_the_setting_says_by_how_much(held: TaskRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = held.runtime.settings.model_copy(update={"lease_minutes": 20.0})
    monkeypatch.setattr("proteus_spot.tasks.job_leases.current_runtime", lambda: _with(held, changed))
    plain(extend_leases)("job")
    assert set(leases(held).values()) == {100 + 1200}


def test_one_machine_alone_gets_the_webhook(held: TaskRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = held.runtime.settings.model_copy(update={"alarm_webhook": SecretStr(HOOK)})
    monkeypatch.setattr("proteus_spot.tasks.job_leases.current_runtime", lambda: _with(held, changed))
    plain(extend_leases)("job")
    (reliable,) = machines(held, "reliable")
    assert {name: lease(held, name).webhook for name in machines(held)} == {
        name: HOOK if name == reliable else None for name in machines(held)
    }


def test_the_first_reliable_machine_that_lives_gets_the_webhook_and_without_such_the_first_of_all() -> None:
    def record(name: str, tier: Tier, *ends: str) -> AllocationRecord:
        allocation = Allocation(name, MARKET, 2, BEGIN_S, tier, None if tier is Tier.RELIABLE else 1000)
        names = (f"{name}-0", f"{name}-1")
        return AllocationRecord("job", allocation, names, name, instance_ends=dict.fromkeys(ends, (1, EndCause.USER)))

    records = [record("spot", Tier.TRANSIENT), record("r", Tier.RELIABLE, "r-0"), record("s", Tier.RELIABLE)]
    found = leases_of(records, BEGIN_S, 3600, None, HOOK)
    assert [name for name, lease in found.items() if lease.webhook] == ["r-1"]
    assert sorted(found) == ["r-1", "s-0", "s-1", "spot-0", "spot-1"]
    spots = [record("gone", Tier.TRANSIENT, "gone-0", "gone-1"), records[0], record("other", Tier.TRANSIENT)]
    of_sweep = leases_of(spots, BEGIN_S, 3600, None, HOOK)
    assert [name for name, lease in of_sweep.items() if lease.webhook] == ["spot-0"]
    assert not [
        lease
        for lease in leases_of(records, BEGIN_S, 3600, {"spot": 1, "r": 1, "s": 1}, HOOK).values()
        if lease.webhook
    ]


def _with(held: TaskRuntime, settings: Settings) -> object:
    return replace(held.runtime, settings=settings)


def test_a_machine_that_has_ended_gets_no_more_and_its_siblings_do(held: TaskRuntime) -> None:
    plain(extend_leases)("job")
    gone = machines(held, "transient")[0]
    held.market.terminate([gone])
    held.clock.at_s += 120
    held.tick(spec())  # the book learns of it
    plain(extend_leases)("job")
    ends = leases(held)
    assert ends.pop(gone) == 100 + 3600
    assert set(ends.values()) == {220 + 3600}


def test_a_machine_that_the_book_does_not_hold_keeps_its_first_lease(held: TaskRuntime) -> None:
    tags = {"proteus:job": "job", "proteus:owner": "another"}
    (stray,) = held.market.launch(LaunchRequest("stray", MARKET, 1, None, "", tags))
    plain(extend_leases)("job")
    with pytest.raises(BlobMissing):
        lease(held, stray.instance_id)


@pytest.mark.parametrize(("billing", "until_s"), [("hourly-refund", HOUR_S), ("per-second-first-hour-free", 1000)])
def test_after_the_end_of_its_job_a_machine_lives_to_the_end_of_its_paid_hour_at_most(
    here: TaskRuntime, billing: str, until_s: int
) -> None:
    job = spec(billing=billing)
    here.begin(job)
    here.tick(job)
    here.clock.at_s = BEGIN_S + 1000
    here.store.jobs.move_job("job", JobState.FINISHED, here.clock.now_s())
    for at_s in (1010, 2000, HOUR_S + 10, 2 * HOUR_S + 10):  # a late tick pays for no further hour
        here.clock.at_s = BEGIN_S + at_s
        plain(extend_leases)("job")
        assert set(leases(here).values()) == {until_s}
    assert all(lease(here, name).is_last for name in leases(here))


def refuse_writes(patch: pytest.MonkeyPatch) -> None:
    def fail(blobs: Blobs, name: str, value: object = None) -> None:
        raise BlobError(f"{name}: AccessDenied")

    patch.setattr(Blobs, "write_json", fail)


def test_leases_that_cannot_be_written_and_alarms_that_cannot_be_read_are_told(
    held: TaskRuntime, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    refuse_writes(monkeypatch)
    monkeypatch.setattr(Blobs, "list", lambda *_: Blobs.write_json(held.runtime.blobs, "alarms", None))
    with caplog.at_level(logging.ERROR):
        line = plain(extend_leases)("job")
    assert line.startswith("job job: 3 of 3 leases cannot be written, so nothing is bought: jobs/job/leases/")
    assert line.endswith("AccessDenied; let the worker write there")
    assert any("alarms of its machines cannot be read" in line for line in caplog.messages)


def test_where_no_lease_can_be_written_a_tick_fails_and_buys_nothing_but_sees_and_ends_machines(
    held: TaskRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    tick = plain_tick(monkeypatch)
    monkeypatch.setattr(
        proteus_spot.flows.allocation_tick, "bring_along", lambda job_engine: ""
    )  # no controller is here
    with monkeypatch.context() as patch:
        refuse_writes(patch)
        held.market.terminate(machines(held, "transient"))
        for _ in range(10):
            held.clock.at_s += 120
            with pytest.raises(PurchaseBlocked, match="1 of 1 leases cannot be written, so nothing is bought"):
                tick("job")
        assert [record.order_id for record in held.store.purchases.allocations("job", alive=True)] == ["job-reliable-0"]
        held.market.terminate(machines(held))
        for _ in range(10):  # no machine has a lease now
            held.clock.at_s += 120
            with pytest.raises(PurchaseBlocked, match=r"job job: leases cannot be written.*lease-check"):
                tick("job")
        assert (len(held.facts(spec())), machines(held)) == (3, [])
    held.clock.at_s += 120
    tick("job")
    assert len(machines(held, "reliable")) == 1, "it goes on when leases can be written"


def test_a_tick_records_an_alarm_once_and_removes_it(held: TaskRuntime) -> None:
    alarm = Alarm("i-1", BEGIN_S + FIRST_S, "no tick extends the lease")
    write_alarm(held.runtime.blobs, "job", alarm)
    plain(extend_leases)("job")
    plain(extend_leases)("job")
    (seen,) = held.store.jobs.observations("job", ObservationKind.ALARM)
    assert (seen.at_s, dict(seen.payload)) == (alarm.at_s, asdict(alarm))
    assert read_alarms(held.runtime.blobs, "job") == []
