"""More budget never hurts the clairvoyant bound: whatever a smaller one would do, a larger one does."""

from dataclasses import replace
from itertools import pairwise

from hypothesis import event, given, settings

from proteus_spot.bidding.backtest.outcomes import Outcome
from tests.bidding.backtest.cases import Case
from tests.bidding.backtest.clairvoyant.test_bound import bound
from tests.bidding.backtest.test_simulate import cases
from tests.support.markets import PROPERTY

#: Shares of a case's work that are tried.
_PARTS = (0.1, 0.25, 0.5, 0.75, 1.0)


@settings(PROPERTY, max_examples=25)
@given(case=cases())
def test_more_budget_never_does_less_work(case: Case) -> None:
    """Less work never costs more, else a smaller budget would do a larger job; up to what the search may miss."""
    works = [max(round(case.setting.work_vcpu_s * part), 1) for part in _PARTS]
    rows = [bound(replace(case, setting=replace(case.setting, work_vcpu_s=work))) for work in works]
    done = [bool(row[Outcome.FINISHED]) for row in rows]
    event(f"{sum(done)} of {len(_PARTS)} parts can be done")
    assert done == sorted(done, reverse=True)
    costs = [int(row[Outcome.COST_MICROS]) for row in rows[: sum(done)]]
    for less, more in pairwise(costs):
        assert less <= more * (1 + 1e-5) + 2
