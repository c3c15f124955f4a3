"""What simulated jobs say of a scheme, and which scheme is recommended."""

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from proteus_spot.bidding.backtest.outcomes import Outcome
from proteus_spot.bidding.backtest.reference_cluster import Reference
from proteus_spot.bidding.market.model import HOUR_S, InstanceType
from proteus_spot.studies.plan.outlook import Outlook, as_json, on_demand_fallback, outlook, percent, recommend, spread
from proteus_spot.studies.plan.planned_job import PlannedJob
from tests.support.markets import PROPERTY

JOB = PlannedJob(
    work_vcpu_s=64 * HOUR_S,
    scaling_efficiency=1.0,
    machines=8,
    reference=Reference(InstanceType("c4.xlarge", 4, 7.5, 200_000), 32),
    max_spot_vcpus=48,
    reliable_count=1,
    reliable_name="c4.xlarge",
    reliable_vcpus=4,
    reliable_micros=200_000,
    deadline_s=2 * HOUR_S,
    budget_micros=1_000_000,
    window_s=9 * HOUR_S,
)


def rows_of(jobs: list[tuple[int, int, bool]]) -> Any:
    """Rows of jobs, each (micro-dollars, seconds, done)."""
    rows = np.zeros((len(jobs), len(Outcome)), dtype=np.int64)
    for row, (micros, seconds, done) in zip(rows, jobs, strict=True):
        row[[Outcome.COST_MICROS, Outcome.RUNTIME_S, Outcome.FINISHED]] = micros, seconds, done
    return rows


def of(name: str, *jobs: tuple[float, float], job: PlannedJob = JOB) -> Outlook:
    """The outlook of jobs that are done, each (dollars, hours)."""
    return outlook(name, rows_of([(round(usd * 1e6), round(h * HOUR_S), True) for usd, h in jobs]), job)


def test_limits_are_kept_to_the_second_and_the_micro_dollar() -> None:
    jobs = [(1_000_000, 7200, True), (1_000_001, 7200, True), (1_000_000, 7201, True), (5, 5, False)]
    each = outlook("x", rows_of(jobs), JOB)
    assert (each.in_time, each.in_budget, each.keeps) == (0.5, 0.75, 0.25)
    figures = as_json(each)
    assert (figures["misses_deadline"], figures["exceeds_budget"], figures["unfinished"]) == (0.5, 0.25, 0.25)
    free = outlook("x", rows_of(jobs), replace(JOB, deadline_s=None, budget_micros=None))
    assert (free.in_time, free.in_budget, free.keeps, free.strain) == (None, None, 0.75, 0.0)


@PROPERTY
@given(
    st.lists(st.tuples(st.integers(0, 3_000_000), st.integers(1, 20_000), st.booleans()), min_size=1, max_size=30),
    st.integers(1, 20_000),
    st.integers(0, 3_000_000),
)
def test_more_time_and_money_never_keep_less(jobs: list[tuple[int, int, bool]], deadline_s: int, micros: int) -> None:
    tight = outlook("x", rows_of(jobs), replace(JOB, deadline_s=deadline_s, budget_micros=micros))
    loose = outlook("x", rows_of(jobs), replace(JOB, deadline_s=deadline_s + 60, budget_micros=micros + 1000))
    none = outlook("x", rows_of(jobs), replace(JOB, deadline_s=None, budget_micros=None))
    assert tight.keeps <= loose.keeps <= none.keeps == tight.finished.mean()
    assert tight.in_time is not None
    assert tight.in_budget is not None
    assert tight.keeps <= min(tight.in_time, tight.in_budget)
    assert tight.keeps >= tight.in_time + tight.in_budget - 1 - 1e-12
    cost = spread(tight.cost_usd)
    assert cost.p10 <= cost.p50 <= cost.p90


def test_the_cheapest_that_keeps_both_in_nine_of_ten_is_recommended() -> None:
    sure = of("sure", *[(0.5, 1.0)] * 10)
    late = of("cheap but late", *[(0.1, 1.0)] * 8, *[(0.1, 2.5)] * 2)
    once = of("late once", *[(0.4, 1.0)] * 9, (0.4, 2.5))
    found = recommend([sure, late, once], JOB)
    assert (found.scheme, found.enough) == ("late once", True)
    assert found.text == (
        "late once costs $0.40 on average ($0.40 at most in nine of ten starts) and takes 1.1 h (1.1 h at most), 88% "
        "less than on demand; it keeps the deadline of 2 h and the budget of $1.00 in 90% of the starts."
    )
    assert recommend([sure, late], JOB).scheme == "sure"


def test_where_none_keeps_them_the_nearest_is_named_and_the_cluster_that_would() -> None:
    job = replace(JOB, budget_micros=5_000_000, deadline_s=HOUR_S)
    half = of("half", *[(0.4, 0.9)] * 5, *[(0.4, 2.5)] * 5, job=job)
    never = of("never", *[(0.1, 3.0)] * 10, job=job)
    found = recommend([never, half], job)
    assert (found.scheme, found.enough) == ("half", False)
    assert found.text == (
        "no scheme keeps the deadline of 1 h and the budget of $5.00 in 90% of the starts; the nearest is half, in "
        "50%, for $0.40 and 1.7 h on average. On demand, 16 x c4.xlarge would keep the deadline, for $3.20."
    )
    nearly = of("nearly", *[(0.9, 1.1)] * 10, job=job)
    assert recommend([never, nearly], job).scheme == "nearly", "of none, the one that misses by least"
    assert "in none, for" in recommend([never, nearly], job).text
    dear = recommend([never], replace(job, budget_micros=3_000_000))
    assert "On demand" not in dear.text, "the larger cluster would be above the budget"


def test_without_limits_a_scheme_only_has_to_end() -> None:
    free = replace(JOB, deadline_s=None, budget_micros=None)
    stuck = outlook("stuck", rows_of([(1, 1, True)] * 8 + [(1, 32_400, False)] * 2), free)
    dear = of("dear", *[(3.2, 2.0)] * 10, job=free)
    assert recommend([stuck, dear], free).scheme == "dear"
    assert recommend([dear], free).text.endswith("as much as on demand.")
    assert recommend([stuck], free).text.startswith(
        "no scheme is done in 90% of the starts; the nearest is stuck, in 80%"
    )


def test_shares_are_not_rounded_to_all_or_none() -> None:
    assert [percent(share) for share in (0, 0.001, 0.4, 0.996, 1)] == ["0%", "under 1%", "40%", "over 99%", "100%"]


def test_the_last_sentence_says_what_the_machines_on_demand_cost_that_keep_the_deadline() -> None:
    # 64 vCPU-hours on 48 vCPUs take 1.33 h: $3.20, and $0.27 for the reliable machine
    rich = on_demand_fallback(replace(JOB, budget_micros=3_470_000))
    assert rich == (
        "If the market gives too little, on-demand machines keep the deadline for up to $3.47, within the budget."
    )
    poor = on_demand_fallback(replace(JOB, budget_micros=3_460_000))
    assert poor == (
        "If the market gives too little, on-demand machines would keep the deadline for up to $3.47, and the budget of "
        "$3.46 forbids that: the budget wins, and the job stops undone."
    )
    late = on_demand_fallback(replace(JOB, deadline_s=HOUR_S))
    assert late.startswith("Even on demand from the start, 48 vCPUs take 1.3 h")
    assert not on_demand_fallback(replace(JOB, deadline_s=None))
    assert not on_demand_fallback(replace(JOB, budget_micros=None))
