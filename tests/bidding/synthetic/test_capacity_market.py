"""Generated capacity: it begins with one machine, grows, and goes in bursts; the same for the same seed."""

import numpy as np

from proteus_spot.bidding.market.model import HOUR_S, Market
from proteus_spot.bidding.synthetic.capacity_market import RESTLESS, generate_capacity

MARKETS = [Market(name, zone) for name in ("c4.large", "m4.large") for zone in ("us-east-1a", "us-east-1b")]


def counts(seed: int, hours: int = 3) -> np.ndarray:
    """The machines of each market at each step, shape (markets, steps)."""
    traces = generate_capacity(MARKETS, 0, hours * HOUR_S, np.random.default_rng(seed))
    return np.array([traces[market].prices_micros for market in MARKETS])


def test_at_first_there_is_one_machine_and_soon_there_are_more() -> None:
    for seed in range(20):
        found = counts(seed)
        assert found[:, 0].sum() == 1
        assert found[:, 9].sum() >= 3
        assert found.max() <= RESTLESS.most
        assert found.min() >= 0


def test_a_burst_takes_machines_of_all_markets_at_once() -> None:
    for seed in range(20):
        found = counts(seed)
        changes = np.diff(found, axis=1)
        first = int(changes[:, :16].sum(axis=0).argmin())
        assert 8 <= first <= 15
        assert (changes[:, first][found[:, first] > 0] < 0).all()


def test_the_seed_alone_decides() -> None:
    assert (counts(1) == counts(1)).all()
    assert (counts(1) != counts(2)).any()


def test_over_a_day_markets_are_full_short_and_empty() -> None:
    found = np.concatenate([counts(seed, 24) for seed in range(5)])
    full, none = (found == RESTLESS.most).mean(), (found == 0).mean()
    assert 0.2 < full < 0.9
    assert 0.05 < none < 0.5
