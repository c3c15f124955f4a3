"""How many reliable machines: the paper's cluster by hand, and what holds of any."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proteus_spot.bidding.economics.reliable_tier import ReliableTierModel, cheapest_number, load_tier, weigh

#: The paper's: 189 machines of 4 vCPUs.
PAPER = ReliableTierModel(transient_vcpus=756)
KNOWN = {"model_bytes": 1e9, "clocks_per_s": 0.1, "link_bytes_per_s": 6e7}


def costs(price: float = 1.0, spot: float = 20.0) -> dict[int, float]:
    return {count: spot + count * price for count in (1, 2, 3, 4)}


def test_the_papers_three_are_the_fewest_of_a_ratio_that_was_measured() -> None:
    numbers = weigh(PAPER, costs())
    assert [(each.count, each.ratio, each.stage) for each in numbers] == [
        (1, 189, 3), (2, 94.5, 3), (3, 63, 3), (4, 47.25, 3)
    ]  # fmt: skip
    assert [bool(each.why_not) for each in numbers] == [True, True, False, False]
    assert numbers[0].why_not.startswith("189 transient vCPUs to 1 are more than the 63 that were measured")
    chosen = cheapest_number(numbers)
    assert chosen is not None
    assert chosen.count == 3


@pytest.mark.parametrize(("transient", "stage"), [(4, 1), (5, 2), (60, 2), (61, 3)])
def test_stages_hold_above_one_and_above_fifteen(transient: int, stage: int) -> None:
    assert ReliableTierModel(transient_vcpus=transient).stage(1) == stage


def test_a_link_that_is_known_decides_instead_of_the_ratio() -> None:
    """1 GB at a clock each ten seconds are 100 MB a second: two machines of 60 MB each take that in, one does not."""
    numbers = weigh(ReliableTierModel(transient_vcpus=756, **KNOWN), costs())
    assert [bool(each.why_not) for each in numbers] == [True, False, False, False]
    assert "are 1.67 times what its link takes in" in numbers[0].why_not
    chosen = cheapest_number(numbers)
    assert chosen is not None
    assert chosen.count == 2


def test_what_a_notice_leaves_must_do_for_the_state() -> None:
    slow = ReliableTierModel(transient_vcpus=8, **{**KNOWN, "clocks_per_s": 1e-4}, notice_s=10)
    assert slow.why_not(1) == "its share of the model takes 17 s to arrive, and a notice leaves 10 s"
    assert slow.why_not(2) == ""


def test_failures_cost_the_work_since_the_checkpoint_and_the_restart() -> None:
    """One failure an hour, half of 600 s and 300 s each: 600 s lost for 3600 useful ones; with two machines 1200 s."""
    tier = ReliableTierModel(transient_vcpus=60, failures_per_hour=1.0)
    assert [tier.lost_share(count) for count in (1, 2)] == pytest.approx([1 / 7, 1 / 4])
    assert [each.cost for each in weigh(tier, {1: 6.0, 2: 6.0})] == pytest.approx([7.0, 8.0])


def test_failures_that_cost_more_than_a_machine_less_decide() -> None:
    dear = {1: 100.0, 2: 99.0}  # as where a second machine computes
    assert cheapest_number(weigh(ReliableTierModel(transient_vcpus=60), dear)).count == 2  # type: ignore[union-attr]
    often = ReliableTierModel(transient_vcpus=60, failures_per_hour=0.2)
    assert cheapest_number(weigh(often, dear)).count == 1  # type: ignore[union-attr]


def test_where_none_will_do_none_is_chosen() -> None:
    assert cheapest_number(weigh(PAPER, {1: 1.0, 2: 2.0})) is None
    assert cheapest_number(()) is None


@settings(deadline=None, max_examples=60)
@given(
    st.builds(
        ReliableTierModel,
        transient_vcpus=st.integers(1, 5000),
        vcpus=st.integers(1, 64),
        model_bytes=st.floats(1e3, 1e12),
        clocks_per_s=st.floats(1e-4, 1e2),
        link_bytes_per_s=st.floats(1e6, 1e10),
        failures_per_hour=st.floats(0, 0.1),
    )
    | st.builds(ReliableTierModel, transient_vcpus=st.integers(1, 5000), vcpus=st.integers(1, 64))
)
def test_what_will_do_will_do_with_more_and_failures_never_pay(tier: ReliableTierModel) -> None:
    numbers = weigh(tier, {count: 1.0 for count in range(1, 9)})
    will_do = [not each.why_not for each in numbers]
    assert will_do == sorted(will_do)
    stages, losses = [each.stage for each in numbers], [each.lost_share for each in numbers]
    assert stages == sorted(stages, reverse=True)
    assert losses == sorted(losses)
    assert all(each.cost >= 1.0 for each in numbers)


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"links": 1}, "links: is not a number of a reliable tier; there are most_ratio, model_bytes"),
        ({"vcpus": 8}, "vcpus: is not a number"),
        ({"notice_s": "long"}, "notice_s is 'long': it must be a number"),
        ({"notice_s": True}, "notice_s is True"),
        ({"restart_s": -1}, "restart_s is -1"),
        ({"checkpoint_s": float("nan")}, "checkpoint_s is nan"),
        ({"most_ratio": 0}, "must be above 0"),
        ({"model_bytes": 1e9}, "say all three, or none"),
    ],
)
def test_what_is_no_tier_is_refused(record: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        load_tier(record, transient_vcpus=756, vcpus=4)


def test_no_machine_is_no_number() -> None:
    with pytest.raises(ValueError, match="0 reliable machines: the state needs at least one"):
        weigh(PAPER, {0: 1.0, 1: 2.0})


def test_a_record_replaces_the_defaults_by_name() -> None:
    assert load_tier({**KNOWN, "notice_s": 30}, transient_vcpus=756, vcpus=8) == ReliableTierModel(
        756, 8, notice_s=30, **KNOWN
    )
