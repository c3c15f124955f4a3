"""Many machines: the cheapest work first, no more than helps, and on demand when the deadline asks for it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proteus_spot.bidding.policies.deadline.fleet import (
    RemainingJob,
    SpotOffer,
    fleet,
    least_on_demand,
)

CHEAP = SpotOffer("cheap", price_usd_per_h=1.0, held=0, seen=6, usual=6.0, loss_per_h=0.05)
DEAR = SpotOffer("dear", price_usd_per_h=2.0, held=0, seen=20, usual=20.0, loss_per_h=0.05)
JOB = RemainingJob(left_machine_h=240.0, time_left_h=36.0, gap_s=600.0, machines=16, on_demand_usd_per_h=5.0)


def test_the_cheapest_is_taken_alone_where_it_usually_suffices() -> None:
    light = replace(JOB, left_machine_h=100.0)
    chosen = fleet(light, (CHEAP, DEAR))
    assert (chosen.spot, chosen.on_demand) == ({"cheap": 6, "dear": 0}, 0)
    assert chosen.highest_usd_per_h == pytest.approx(1.0, rel=0.05)


def test_the_next_one_is_taken_too_where_it_does_not() -> None:
    assert fleet(JOB, (CHEAP, DEAR)).spot == {"cheap": 6, "dear": 10}, "no more than help"


def test_what_is_lost_soon_is_dear() -> None:
    fleeting = replace(CHEAP, loss_per_h=15.0)
    assert fleet(replace(JOB, left_machine_h=100.0), (fleeting, DEAR)).spot == {"cheap": 0, "dear": 16}


def test_a_machine_that_joins_for_dollars_is_dear() -> None:
    joining = replace(CHEAP, joining_usd=100.0)
    assert fleet(replace(JOB, left_machine_h=60.0), (joining, DEAR)).spot == {"cheap": 0, "dear": 16}


def test_what_is_held_is_kept_before_what_is_new() -> None:
    held = replace(DEAR, market="held", price_usd_per_h=1.0, held=4, seen=4, usual=4.0)
    chosen = fleet(replace(JOB, machines=5, left_machine_h=100.0), (CHEAP, held))
    assert chosen.spot == {"cheap": 1, "held": 4}


def test_what_is_done_holds_nothing() -> None:
    chosen = fleet(replace(JOB, left_machine_h=0.0, on_demand_held=3), (CHEAP, DEAR))
    assert (set(chosen.spot.values()), chosen.on_demand) == ({0}, 0)


def test_spot_that_is_never_enough_has_on_demand_beside_it_from_the_start() -> None:
    few = replace(CHEAP, seen=4, usual=4.0)
    chosen = fleet(replace(JOB, left_machine_h=360.0), (few,))
    assert (chosen.spot, chosen.on_demand) == ({"cheap": 4}, 6)


def test_without_a_deadline_time_has_its_price() -> None:
    patient = replace(JOB, time_left_h=None)
    assert fleet(patient, (CHEAP, DEAR)).spot == {"cheap": 6, "dear": 0}, "least cost for a unit of work"
    hasty = replace(patient, value_of_time_usd_per_h=40.0)
    assert fleet(hasty, (CHEAP, DEAR)).spot == {"cheap": 6, "dear": 10}


@given(
    left_h=st.floats(0.1, 400),
    slack=st.floats(0, 2000),
    machines=st.integers(1, 16),
    gap_s=st.floats(60, 1800),
    boot_share=st.floats(0, 1),
    spot=st.lists(st.floats(0, 1), min_size=1, max_size=20),
)
def test_the_net_holds_whatever_spot_does(
    left_h: float, slack: float, machines: int, gap_s: float, boot_share: float, spot: list[float]
) -> None:
    boot_s = boot_share * gap_s
    left_s = left_h * 3600
    left_s = min(left_s, 300 * gap_s * machines)
    deadline_s = left_s / machines + boot_s + slack
    held, at_s, step = 0, 0.0, 0
    while left_s > 1e-6:
        count = least_on_demand(left_s, deadline_s - at_s, gap_s, boot_s, machines, held)
        assert 0 <= count <= machines
        old, new = min(count, held), max(count - held, 0)
        free = machines - count
        done = old * gap_s + new * (gap_s - boot_s) + spot[step % len(spot)] * free * gap_s
        if done >= left_s:
            # the work is done within this gap: at the pace of those that work, the new ones after their boot
            early = old * boot_s
            used = left_s / old if 0 < left_s <= early else boot_s + (left_s - early) / max(old + new, 1)
            if spot[step % len(spot)] == 0:
                at_s += used
                break
        left_s -= done
        held, step, at_s = count, step + 1, at_s + gap_s
        assert step < 2000
    assert at_s <= deadline_s + gap_s, "and by no more than the gap in which spot finishes"


@pytest.mark.parametrize("held", [0, 3, 4])
def test_no_time_left_is_all_on_demand(held: int) -> None:
    assert least_on_demand(4 * 3600.0, 3600.0, 600.0, 180.0, 4, held) == 4
