"""The direction of L-BFGS is that of BFGS with as many pairs."""

import numpy as np
import pytest

from proteus_spot.psengine.apps.bgd.directions import is_curved, quasi_newton_direction


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_it_is_the_direction_of_the_inverse_hessian_that_bfgs_builds(count: int) -> None:
    rng = np.random.default_rng(count)
    root = rng.standard_normal((7, 7))
    moves = rng.standard_normal((count, 7))
    pairs = [(move, root @ root.T @ move) for move in moves]
    gradient = rng.standard_normal(7)
    inverse = np.eye(7)
    if pairs:
        moved, change = pairs[-1]
        inverse *= moved @ change / (change @ change)
    for moved, change in pairs:  # Nocedal and Wright, 6.17
        share = np.eye(7) - np.outer(moved, change) / (moved @ change)
        inverse = share @ inverse @ share.T + np.outer(moved, moved) / (moved @ change)
    np.testing.assert_allclose(quasi_newton_direction(gradient, pairs), -inverse @ gradient, rtol=1e-9)


def test_a_pair_without_a_positive_curvature_is_none() -> None:
    moved = np.array([1.0, 0.0])
    assert is_curved(moved, np.array([0.5, 3.0]))
    assert not is_curved(moved, np.array([0.0, 3.0]))
    assert not is_curved(moved, np.array([-0.5, 0.0]))
