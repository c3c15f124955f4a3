"""The measured decision weighs every candidate and every allocation."""

from proteus_spot.benchmarks.market import candidates
from proteus_spot.bidding.engine.orders import Lapse, Renew


def test_every_hours_end_is_decided_and_something_is_bought() -> None:
    orders = candidates.decide_on(*candidates.job(types=40, held=5))
    assert sum(isinstance(order, Renew | Lapse) for order in orders) == 5
    figure = candidates.run(rounds=1, types=40, held=5)
    assert "2,400 candidates and 5 allocations" in figure.what
    assert figure.ours > 0


def test_the_full_measure_has_as_many_candidates_as_the_requirement() -> None:
    assert candidates.TYPES * len(candidates.ZONES) * len(candidates.DELTAS) == 144_000
