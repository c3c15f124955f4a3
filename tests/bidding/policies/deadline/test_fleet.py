"""Many machines: the cheapest work first, no more than helps, and on demand when the deadline asks for it."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proteus_spot.bidding.policies.deadline.fleet import choose, highest_price, least_on_demand, work_price

GAP_S, BOOT_S, MACHINES = 600.0, 180.0, 16


@dataclass(frozen=True)
class Offer:
    usd_per_h: float
    held: int
    seen: int
    loss_per_h: float = 0.05
    joining_usd: float = 0.0
    size: int = 1

    def fresh(self, needed_s: float) -> float:
        return work_price(self.usd_per_h / 3600, self.joining_usd, self.loss_per_h / 3600, BOOT_S, needed_s)


def chosen(
    left_h: float,
    *offers: Offer,
    time_left_h: float = 36.0,
    machines: int = MACHINES,
    dear: float = 10.0,
    waiting: float = 0.0,
) -> tuple[list[int], int]:
    """Return the spot machines by offer, and those on demand; what is seen is usual.

    `dear` and `waiting` are dollars an hour: of a machine on demand, and of time.
    """
    left_s, wanted = left_h * 3600, np.zeros(len(offers))
    held, seen = (np.array([float(getattr(one, name)) for one in offers]) for name in ("held", "seen"))
    prices = np.array([one.usd_per_h / 3600 for one in offers])
    fresh = np.array([one.fresh(left_s / machines) for one in offers])
    sizes = np.array([float(one.size) for one in offers])
    on_demand, _ = choose(
        left_s, left_s, time_left_h * 3600, GAP_S, machines, 0, BOOT_S, dear / 3600, waiting / 3600, 0.0,
        float(machines), prices / sizes, fresh / sizes, sizes, held, seen, seen * sizes, wanted,
    )  # fmt: skip
    return wanted.astype(int).tolist(), on_demand


CHEAP, DEAR = Offer(1.0, held=0, seen=6), Offer(2.0, held=0, seen=20)


def test_the_cheapest_is_taken_alone_where_it_usually_suffices() -> None:
    assert chosen(100.0, CHEAP, DEAR) == ([6, 0], 0)
    fresh = np.array([CHEAP.fresh(100 * 3600 / MACHINES), DEAR.fresh(100 * 3600 / MACHINES)])
    assert highest_price(fresh, np.array([6.0, 20.0]), 4.0, MACHINES) == fresh[0]


def test_spot_that_is_dearer_than_on_demand_is_never_taken() -> None:
    assert chosen(360.0, CHEAP, DEAR, dear=1.5) == ([6, 0], 5)


def test_a_machine_counts_for_what_it_works() -> None:
    assert chosen(240.0, replace(CHEAP, size=4), DEAR)[0] == [4, 0], "four of four are all that helps"
    assert chosen(240.0, replace(CHEAP, size=5), DEAR)[0] == [3, 0], "a fourth one would be more"


def test_without_a_deadline_the_cheapest_is_taken_and_more_where_time_has_its_price() -> None:
    ever = float("inf")
    assert chosen(100.0, CHEAP, DEAR, time_left_h=ever) == ([6, 0], 0)
    assert chosen(100.0, CHEAP, DEAR, time_left_h=ever, waiting=5.0) == ([6, 0], 0), "11 / 6 < 2"
    assert chosen(100.0, CHEAP, DEAR, time_left_h=ever, waiting=9.0) == ([6, 10], 0), "15 / 6 > 2"


def test_the_next_one_is_taken_too_where_it_does_not() -> None:
    assert chosen(240.0, CHEAP, DEAR)[0] == [6, 10], "no more than help"


def test_what_is_lost_soon_is_dear() -> None:
    assert chosen(100.0, replace(CHEAP, loss_per_h=15.0), DEAR)[0] == [0, 16]


def test_a_machine_that_joins_for_dollars_is_dear() -> None:
    assert chosen(60.0, replace(CHEAP, joining_usd=100.0), DEAR)[0] == [0, 16]


def test_what_is_held_is_kept_before_what_is_new() -> None:
    assert chosen(100.0, CHEAP, Offer(1.0, held=4, seen=4), machines=5)[0] == [1, 4]


def test_spot_that_is_never_enough_has_on_demand_beside_it_from_the_start() -> None:
    assert chosen(360.0, replace(CHEAP, seen=4)) == ([4], 7), "10 are needed, and 15 % more"


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
