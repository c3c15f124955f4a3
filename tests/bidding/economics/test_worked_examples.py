"""Equations (1)-(4) by hand, from the market's numbers to the decision: Fig. 6's footprint in the phases of Fig. 5.

All times are in hours here, as in a calculation on paper; the code's are seconds.
"""

from fractions import Fraction

import pytest

from proteus_spot.bidding.economics.equations import cost_per_work, effective_time_s, expected_cost_usd, overhead_s
from proteus_spot.bidding.economics.job_model import JobModel
from proteus_spot.bidding.market.model import HOUR_S, Allocation
from proteus_spot.bidding.policies.base import Choice
from proteus_spot.bidding.policies.footprint import held_part, per_work
from proteus_spot.bidding.policies.proteus import ProteusPolicy
from tests.support.markets import LARGE, XLARGE, XLARGE_B, reliable, spot, table, view

PROTEUS = ProteusPolicy()

#: Required, without work: 2 c4.xlarge on demand at 0.20 $. Bid for: 4 c4.xlarge of 4 vCPUs at 0.05 $, taken within the
#: hour with 1/2, half an hour after the purchase. On sale: 8 of them in another zone at 0.04 $, taken with 1/5, after
#: ten minutes.
JOB = JobModel(
    resize_overhead_s=36, eviction_overhead_s=72, allocation_vcpus=32, max_spot_vcpus=48, reliable_works=False
)
SIGMA, LAMBDA = Fraction(1, 100), Fraction(2, 100)
TABLE = table({XLARGE: ((0.5, 1800.0),) * 3, XLARGE_B: ((0.2, 600.0),) * 3})
PRICES = {XLARGE: "0.05", XLARGE_B: "0.04"}
RED, YELLOW = reliable(count=2), spot("yellow", XLARGE, 4, "0.06")

C_RED = Fraction(40, 100)
C_YELLOW = (1 - Fraction(1, 2)) * Fraction(5, 100) * 4  # (1): half of the hours come back
C_GREEN = (1 - Fraction(1, 5)) * Fraction(4, 100) * 8
OMEGA_YELLOW = Fraction(1, 2) * 1 + Fraction(1, 2) * Fraction(1, 2)
OMEGA_GREEN = Fraction(4, 5) * 1 + Fraction(1, 5) * Fraction(1, 6)


def test_equation_1_is_the_price_of_the_hours_that_are_not_refunded() -> None:
    costs = [expected_cost_usd(1 - 0.5, 50_000, 4, 3600), expected_cost_usd(1 - 0.2, 40_000, 8, 3600)]
    assert costs == pytest.approx([0.10, 0.256]) == [float(C_YELLOW), float(C_GREEN)]
    assert expected_cost_usd(1 - 0.5, 50_000, 4, 900) == pytest.approx(0.025), "a quarter of the hour is left"


def test_equation_2_takes_off_lambda_as_often_as_any_is_taken_and_sigma_for_the_change() -> None:
    any_taken = 1 - (1 - Fraction(1, 2)) * (1 - Fraction(1, 5))
    assert any_taken == Fraction(6, 10)
    by_hand = [OMEGA_YELLOW - any_taken * LAMBDA - SIGMA, OMEGA_GREEN - any_taken * LAMBDA - SIGMA]
    assert by_hand == [Fraction(728, 1000), OMEGA_GREEN - Fraction(22, 1000)]
    found = [effective_time_s(useful_s, overhead_s(0.6, 72, 36)) for useful_s in (2700, 3000)]
    assert found == pytest.approx([float(each) * HOUR_S for each in by_hand]) == [2620.8, 2920.8]


def test_equation_4_is_dollars_for_a_vcpu_hour() -> None:
    assert cost_per_work(0.756, 37.6106667) == pytest.approx(0.0201007)


# Fig. 5's phases, with what Fig. 6 says of each


def e_of(*footprint: Allocation, prices: dict[object, str] | None = None) -> float:
    """Return E of a footprint that is held as it is."""
    here = view(*footprint, prices=prices or PRICES, job=JOB, evictions=TABLE)  # type: ignore[arg-type]
    return per_work([held_part(here, each) for each in here.footprint], here, resized=False)[0]


GREEN = spot("green", XLARGE_B, 8, "0.05")
W_YELLOW = 16 * (OMEGA_YELLOW - Fraction(1, 2) * LAMBDA)
PHASE_1 = (C_RED + C_YELLOW) / W_YELLOW
ANY = Fraction(6, 10) * LAMBDA
PHASE_2 = (C_RED + C_YELLOW + C_GREEN) / (16 * (OMEGA_YELLOW - ANY) + 32 * (OMEGA_GREEN - ANY))
PHASE_3 = (C_RED + C_GREEN) / (32 * (OMEGA_GREEN - Fraction(1, 5) * LAMBDA))


def test_each_phase_costs_what_its_blocks_add_up_to() -> None:
    """One spot allocation beside the required machines; a second one; the first is taken."""
    phases = [e_of(RED, YELLOW), e_of(RED, YELLOW, GREEN), e_of(RED, GREEN)]
    assert phases == pytest.approx([float(PHASE_1), float(PHASE_2), float(PHASE_3)])
    assert phases == pytest.approx([0.0422297, 0.0198474, 0.0247186], abs=1e-7)


def test_the_second_allocation_costs_more_at_once_and_less_for_the_work() -> None:
    """Fig. 6: this transition increases the actual cost at that moment, and reduces what the whole work costs."""
    assert C_RED + C_YELLOW + C_GREEN > C_RED + C_YELLOW
    assert PHASE_2 < PHASE_1
    decision = PROTEUS.acquisition(
        view(RED, YELLOW, prices=PRICES, job=JOB, evictions=TABLE, cooling=frozenset({XLARGE}))
    )
    assert decision.verdict is Choice.ACQUIRE
    assert decision.chosen is not None
    assert (decision.chosen.market, decision.chosen.count) == (XLARGE_B, 8)
    with_sigma = (C_RED + C_YELLOW + C_GREEN) / (16 * (OMEGA_YELLOW - ANY - SIGMA) + 32 * (OMEGA_GREEN - ANY - SIGMA))
    assert decision.chosen.cost_per_work == pytest.approx(float(with_sigma))
    assert decision.cost_per_work == pytest.approx(float(PHASE_1))


def test_after_the_eviction_the_place_is_filled_again_where_that_pays() -> None:
    """Without yellow work costs more, so the next allocation of 16 vCPUs is bought; what would cost too much is not."""
    assert PHASE_2 < PHASE_3 < PHASE_1
    for price, verdict in (("0.05", Choice.ACQUIRE), ("0.19", Choice.WAIT)):
        here = view(
            RED,
            GREEN,
            prices={XLARGE: price, XLARGE_B: "0.04"},
            job=JOB,
            evictions=TABLE,
            cooling=frozenset({XLARGE_B}),
        )
        decision = PROTEUS.acquisition(here)
        assert decision.verdict is verdict
        each = (C_RED + C_GREEN + Fraction(1, 2) * Fraction(price) * 4) / (
            16 * (OMEGA_YELLOW - ANY - SIGMA) + 32 * (OMEGA_GREEN - ANY - SIGMA)
        )
        assert decision.candidates[0].cost_per_work == pytest.approx(float(each))
        assert (each < PHASE_3) == (verdict is Choice.ACQUIRE)


def test_required_machines_stay_even_if_work_would_cost_less_without_them() -> None:
    assert e_of(YELLOW) < e_of(RED, YELLOW)
    decision = PROTEUS.acquisition(view(RED, prices={LARGE: "0.05"}, job=JOB, evictions=table()))
    assert decision.verdict is Choice.ACQUIRE, "what they cost is shared by what is bought"
