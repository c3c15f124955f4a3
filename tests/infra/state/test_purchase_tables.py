"""The state database: allocations, how each of their machines ended, and the ledger."""

from dataclasses import replace

import pytest

from proteus_spot.bidding.market.model import EndCause
from proteus_spot.infra.state.records import (
    IllegalTransition,
    InstanceLife,
    IntentConflict,
    LedgerKind,
    LedgerLine,
    StoreError,
    UnknownRecord,
)
from proteus_spot.infra.state.store import Store
from tests.support.journal_entries import HELD


def test_an_allocation_is_recorded_and_ended_once(store: Store) -> None:
    record = store.purchases.record_allocation("job-1", "job-1/1", HELD, ["i-1", "i-2"])
    assert record == store.purchases.record_allocation("job-1", "job-1/1", HELD, ["i-1", "i-2"])
    assert (record.allocation, record.instance_ids, record.alive) == (HELD, ("i-1", "i-2"), True)
    assert store.purchases.allocations("job-1", alive=True) == [record]
    ended = store.purchases.end_allocation("a-1", 2000, EndCause.EVICTED)
    assert ended == store.purchases.end_allocation("a-1", 2000, EndCause.EVICTED)
    assert ended == replace(record, ended_at_s=2000, end_cause=EndCause.EVICTED)
    with pytest.raises(IllegalTransition):
        store.purchases.end_allocation("a-1", 2000, EndCause.USER)
    assert store.purchases.allocations("job-1", alive=False) == [ended]
    assert store.purchases.allocations("job-1", alive=True) == []


def test_the_end_of_an_instance_is_written_once(store: Store) -> None:
    taken, left = (1500, EndCause.EVICTED), (1600, EndCause.USER)
    record = store.purchases.record_allocation("job-1", "job-1/1", HELD, ["i-1", "i-2"])
    assert (record.instance_ends, record.lives) == ({}, [InstanceLife(2, None, None)])
    ended = store.purchases.record_instance_ends("a-1", {"i-1": taken})
    assert ended == replace(record, instance_ends={"i-1": taken})
    assert (ended.living_ids, ended.living_count) == (["i-2"], 1)
    assert store.purchases.record_instance_ends("a-1", {"i-1": left}) == ended
    assert store.purchases.record_allocation("job-1", "job-1/1", HELD, ["i-1", "i-2"]) == ended
    assert ended.machines == [InstanceLife(1, *taken), InstanceLife(1, None, None)]
    with pytest.raises(IllegalTransition, match="i-2 cannot end at 999, before its launch"):
        store.purchases.record_instance_ends("a-1", {"i-2": (999, EndCause.USER)})
    store.purchases.end_allocation("a-1", 2000, EndCause.USER)
    gone = store.purchases.record_instance_ends("a-1", {"i-2": left})
    assert gone.instance_ends == {"i-1": taken}, "it has ended with the allocation"
    assert gone.lives == [InstanceLife(1, *taken), InstanceLife(1, 2000, EndCause.USER)]
    with pytest.raises(UnknownRecord, match="allocation a-2"):
        store.purchases.record_instance_ends("a-2", {"i-1": taken})


def test_an_instance_that_is_seen_alive_has_not_ended_and_its_allocation_neither(store: Store) -> None:
    taken = (1500, EndCause.EVICTED)
    record = store.purchases.record_allocation("job-1", "job-1/1", HELD, ["i-1", "i-2"])
    store.purchases.record_instance_ends("a-1", {"i-1": taken})
    assert store.purchases.record_instance("a-1", "i-1") == record
    assert store.purchases.record_instance("a-1", "i-2") == record, "nothing was wrong of it"
    store.purchases.record_instance_ends("a-1", {"i-1": taken})
    store.purchases.end_allocation("a-1", 2000, EndCause.USER)
    again = store.purchases.record_instance("a-1", "i-2")
    assert again == replace(record, instance_ends={"i-1": taken})
    store.purchases.end_allocation("a-1", 2100, EndCause.USER)
    back = store.purchases.record_instance("a-1", "i-1")
    assert back == replace(record, instance_ends={"i-2": (2100, EndCause.USER)})
    with pytest.raises(UnknownRecord, match="allocation a-2"):
        store.purchases.record_instance("a-2", "i-1")


def test_an_instance_that_is_found_later_joins_its_allocation_dead_or_alive(store: Store) -> None:
    store.purchases.record_allocation("job-1", "job-1/1", HELD, ["i-1", "i-2"])
    grown = store.purchases.record_instance("a-1", "i-3")
    assert (grown.instance_ids, grown.allocation.count, grown.living_count) == (("i-1", "i-2", "i-3"), 3, 3)
    dead = store.purchases.record_instance_ends("a-1", {"i-4": (1500, EndCause.USER)})
    assert (dead.allocation.count, dead.living_ids) == (4, ["i-1", "i-2", "i-3"])
    store.purchases.end_allocation("a-1", 2000, EndCause.USER)
    last = store.purchases.record_instance_ends("a-1", {"i-5": (1600, EndCause.USER)})
    assert (last.allocation.count, last.alive, last.living_count) == (5, False, 0)
    assert [life.ended_at_s for life in last.machines] == [2000, 2000, 2000, 1500, 1600]


def test_an_order_never_has_two_allocations(store: Store) -> None:
    record = store.purchases.record_allocation("job-1", "job-1/1", HELD, ["i-1"])
    for allocation, instance_ids in ((replace(HELD, allocation_id="a-2"), ["i-1"]), (HELD, ["i-9"])):
        with pytest.raises(IntentConflict):
            store.purchases.record_allocation("job-1", "job-1/1", allocation, instance_ids)
    assert store.purchases.allocations("job-1") == [record]
    with pytest.raises(IllegalTransition, match="before its launch"):
        store.purchases.end_allocation("a-1", 999, EndCause.USER)


def test_money_spent_is_the_sum_of_the_ledger(store: Store) -> None:
    store.purchases.record_allocation("job-1", "job-1/1", HELD, [])
    charge = LedgerLine("job-1", "a-1", 0, LedgerKind.CHARGE, 1000, 31_000, 62_000)
    refund = LedgerLine("job-1", "a-1", 0, LedgerKind.REFUND, 2000, 31_000, -62_000, "evicted")
    assert store.purchases.spent("job-1") == 0
    store.purchases.add_lines([charge])
    store.purchases.add_lines([replace(charge, amount_micros=1), refund])  # a line that is there stays as it is
    assert store.purchases.ledger("job-1") == [charge, refund]
    assert (charge.entry_id, refund.entry_id) == ("a-1/0/charge", "a-1/0/refund")
    assert store.purchases.spent("job-1") == 0
    large = LedgerLine("job-1", "a-1", 1, LedgerKind.CHARGE, 4600, 2**40, 2**41)
    store.purchases.add_lines([large])
    assert store.purchases.spent("job-1") == 2**41


def test_money_is_booked_on_what_there_is_and_with_the_right_sign(store: Store) -> None:
    line = LedgerLine("job-1", "a-1", 0, LedgerKind.CHARGE, 1000, 1, 1)
    with pytest.raises(StoreError, match=r"state database .*(FOREIGN KEY|foreign key)"):
        store.purchases.add_lines([line])
    store.purchases.record_allocation("job-1", "job-1/1", HELD, [])
    with pytest.raises(StoreError, match="signs_of_money"):
        store.purchases.add_lines([replace(line, amount_micros=-1)])
    assert store.purchases.ledger("job-1") == []
