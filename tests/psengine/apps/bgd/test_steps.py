"""The search ends with the Armijo-Wolfe conditions, or says that it failed."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from proteus_spot.psengine.apps.bgd.steps import LineSearch


@settings(max_examples=300, deadline=None)
@given(st.floats(1e-6, 1e6), st.floats(0.05, 50.0), st.floats(0.0, 3.0), st.sampled_from([0.1, 0.5, 0.9]))
def test_conditions_hold_on_convex_functions(first: float, minimum: float, quartic: float, curvature: float) -> None:
    def at(t: float) -> tuple[float, float]:
        z = t - minimum
        with np.errstate(over="ignore"):
            return z * z + quartic * z**4, 2 * z + 4 * quartic * z**3

    value, slope = at(0.0)
    search = LineSearch(value, slope, first, curvature)
    while search.accepted is None:
        assert not search.failed
        search.receive(*at(search.trial))
    reached, left = at(search.accepted)
    assert reached < value
    assert reached <= value + 1e-4 * search.accepted * slope
    assert left >= curvature * slope


def test_a_search_without_a_decrease_fails() -> None:
    assert LineSearch(1.0, 0.0, 1.0).failed
    search = LineSearch(1.0, -1e-20, 1.0)
    while not search.failed:
        search.receive(1.0, -1e-20)
        assert search.accepted is None
    search = LineSearch(1.0, -1.0, 1.0)
    search.receive(float("nan"), float("nan"))
    assert 0.0 < search.trial < 1.0
