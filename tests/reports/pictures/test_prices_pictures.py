"""Pictures of prices: they show every market that they say they show."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from proteus_spot.bidding.market.model import Market
from proteus_spot.bidding.market.traces import Trace, TraceSet
from proteus_spot.infra.errors import InputError
from proteus_spot.reports.pictures.prices_pictures import MOST_PANELS, _thinned, plot_prices

DAY_S = 86_400
T0 = 1_459_468_800


def ragged(seed: int, events: int = 50, height: int = 2_000_000) -> Trace:
    rng = np.random.default_rng(seed)
    times = T0 + np.sort(rng.choice(3 * DAY_S, events, replace=False))
    prices = rng.integers(20_000, 40_000, events)
    prices[events // 2] = height
    return Trace(times, prices)


MARKETS = TraceSet(
    {Market(kind, f"us-east-1{zone}"): ragged(ord(zone)) for kind in ("a.big", "b.big") for zone in "ab"}
)
ON_DEMAND = {Market("a.big", "us-east-1a"): Trace(np.array([T0 - DAY_S, T0 + DAY_S]), np.array([105_000, 100_000]))}


def test_a_panel_shows_the_steps_of_a_types_zones_and_its_on_demand_price(tmp_path: Path, drawn: list[Figure]) -> None:
    plot_prices(tmp_path / "p.png", "the title", MARKETS, ON_DEMAND)
    assert imread(tmp_path / "p.png").shape[1] == 1100
    (figure,) = drawn
    assert figure.get_suptitle() == "the title"
    panels = {axis.get_title(loc="left"): axis for axis in figure.axes}
    assert list(panels) == ["a.big", "b.big"]
    lines = {str(line.get_label()): line for line in panels["a.big"].lines}
    assert set(lines) == {"us-east-1a", "us-east-1b", "on demand"}
    assert {line.get_drawstyle() for line in lines.values()} == {"steps-post"}
    trace = MARKETS[Market("a.big", "us-east-1b")]
    assert np.allclose(np.asarray(lines["us-east-1b"].get_ydata(), float)[:-1] * 1e6, trace.prices_micros)
    assert list(np.asarray(lines["on demand"].get_ydata(), float)) == [0.105, 0.1, 0.1]
    assert "on demand" not in {str(line.get_label()) for line in panels["b.big"].lines}
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["us-east-1a", "us-east-1b", "on demand"]


def test_of_many_types_the_least_calm_are_shown_and_said(tmp_path: Path, drawn: list[Figure]) -> None:
    heights = {f"t{number:02}.big": 50_000 * (1 + number) for number in range(MOST_PANELS + 3)}
    traces = TraceSet({Market(name, "z"): ragged(1, height=height) for name, height in heights.items()})
    plot_prices(tmp_path / "p.svg", "many", traces, {})
    assert [axis.get_title(loc="left") for axis in drawn[0].axes if axis.get_visible()] == list(heights)[3:]
    assert "12 of 15 types" in drawn[0].get_suptitle()


def test_thinning_leaves_what_can_be_seen() -> None:
    trace = ragged(3, events=20_000)
    times, prices = _thinned(trace, T0, T0 + 3 * DAY_S)
    assert len(times) < 5000
    assert prices.max() == trace.prices_micros.max() / 1e6
    assert prices.min() == trace.prices_micros.min() / 1e6
    assert prices[-1] == trace.prices_micros[-1] / 1e6
    assert (np.diff(times.astype(np.int64)) >= 0).all()


def test_a_single_event_can_be_drawn(tmp_path: Path) -> None:
    plot_prices(tmp_path / "p.png", "one", TraceSet({Market("a", "z"): Trace(np.array([T0]), np.array([1]))}), {})
    assert imread(tmp_path / "p.png").size


def test_a_picture_of_another_kind_or_place_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"p\.gif: .* end it with \.png, \.svg, \.pdf"):
        plot_prices(tmp_path / "p.gif", "", MARKETS, {})
    with pytest.raises(InputError, match="cannot be written"):
        plot_prices(tmp_path / "none" / "p.png", "", MARKETS, {})
