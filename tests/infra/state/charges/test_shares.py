"""The share of each machine in a line of the ledger."""

from hypothesis import given
from hypothesis import strategies as st

from proteus_spot.bidding.market.model import Allocation, EndCause, Market, Tier
from proteus_spot.infra.state.charges.charge_prices import BY_SECOND
from proteus_spot.infra.state.charges.shares import by_hour, by_second
from proteus_spot.infra.state.records import AllocationRecord, LedgerKind, LedgerLine

HOUR = 3600
T0 = 1_460_000_000
NAMES = ("i-1", "i-2", "i-3")
HELD = Allocation("a-1", Market("c4.large", "us-east-1a"), 3, T0, Tier.TRANSIENT, 50_000)


def record(**ends: tuple[int, EndCause]) -> AllocationRecord:
    """Return a record of three machines, some of which ended these seconds after the launch."""
    told = {name.replace("_", "-"): (T0 + after_s, cause) for name, (after_s, cause) in ends.items()}
    return AllocationRecord("job", HELD, NAMES, "order", instance_ends=told)


def line(amount: int, kind: LedgerKind = LedgerKind.CHARGE, hour: int = 0) -> LedgerLine:
    return LedgerLine("job", "a-1", hour, kind, T0 + hour * HOUR, 36_000, amount, BY_SECOND)


def test_seconds_are_divided_by_those_that_each_machine_lived() -> None:
    ends = {"i_1": (900, EndCause.EVICTED), "i_2": (1800, EndCause.USER)}
    found = by_second(record(**ends), line(9_000 + 18_000 + 36_000), line(-9_000, LedgerKind.REFUND))
    assert [(share.machine, share.amount, share.refunded, share.paid_s) for share in found] == [
        (0, 9_000, True, 900),
        (1, 18_000, False, 1800),
        (2, 36_000, False, HOUR),
    ]


def test_who_had_ended_before_the_hour_has_no_share_of_it() -> None:
    ends = {"i_1": (900, EndCause.EVICTED)}
    assert [share.machine for share in by_second(record(**ends), line(72_000, hour=1), None)] == [1, 2]


def test_whole_hours_are_of_those_that_lived_when_they_began() -> None:
    ends = {"i_1": (900, EndCause.EVICTED), "i_2": (HOUR, EndCause.USER)}
    found = by_hour(record(**ends), line(3 * 36_000), line(-36_000, LedgerKind.REFUND))
    assert {share.machine for share in found} == {0, 1, 2}
    assert [share.machine for share in found if share.refunded] == [0]
    assert {(share.amount, share.paid_s) for share in found} == {(36_000, HOUR)}


ENDS = st.none() | st.tuples(st.integers(0, 3 * HOUR), st.sampled_from(EndCause))


@given(st.tuples(ENDS, ENDS, ENDS), st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 1))
def test_the_shares_add_up_to_the_charge_and_to_what_came_back(
    ends: tuple[tuple[int, EndCause] | None, ...], amount: int, back: int, hour: int
) -> None:
    told = {name.replace("-", "_"): end for name, end in zip(NAMES, ends, strict=True) if end is not None}
    refund = line(-min(back, amount), LedgerKind.REFUND, hour)
    found = by_second(record(**told), line(amount, hour=hour), refund)
    assert sum(share.amount for share in found) == amount
    assert sum(share.amount for share in found if share.refunded) == min(back, amount)
    assert all(share.amount >= 0 and 0 < share.paid_s <= HOUR for share in found)
