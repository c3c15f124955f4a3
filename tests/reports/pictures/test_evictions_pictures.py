"""Pictures of eviction models: they are drawn for any number of markets, and name what they leave out."""

from pathlib import Path

import pytest
from matplotlib.image import imread

from proteus_spot.bidding.evictions.calibration import calibrate
from proteus_spot.bidding.evictions.fit_capacity import Band, of_bands
from proteus_spot.bidding.evictions.fit_conditioned import fit_conditioned
from proteus_spot.bidding.evictions.fit_survival import fit_survival
from proteus_spot.bidding.market.model import Market
from proteus_spot.bidding.market.time_window import TimeWindow
from proteus_spot.bidding.market.traces import TraceSet
from proteus_spot.infra.errors import InputError
from proteus_spot.reports.pictures.evictions_pictures import (
    MOST_PANELS,
    check_picture_name,
    plot_reliability,
    plot_survival,
)
from tests.bidding.evictions.naive import MARKET, trace

PRICES = TraceSet({MARKET: trace((0, 20_000), (4000, 30_000), (9000, 20_000), (40_000, 500_000))})


@pytest.mark.parametrize("markets", [1, 2, 3, 4, MOST_PANELS + 1])
def test_survival_is_drawn_for_any_number_of_markets(tmp_path: Path, markets: int) -> None:
    model = of_bands({Market(f"c{number}.large", "z"): Band(0, 0.05) for number in range(markets)})
    plot_survival(tmp_path / "p.svg", "a title", model)
    text = (tmp_path / "p.svg").read_text()
    assert text.count("<!-- c") == min(markets, MOST_PANELS), "a title a panel"
    assert ("12 of 13 markets, the least calm" in text) == (markets > MOST_PANELS)


def test_the_range_of_the_states_is_drawn_beside_the_mean(tmp_path: Path) -> None:
    for name, fit in (("plain", fit_survival), ("states", fit_conditioned)):
        plot_survival(tmp_path / f"{name}.svg", "t", fit(PRICES, TimeWindow(0, 50_000)))
    plain, states = ((tmp_path / f"{name}.svg").read_text().count("FillBetween") for name in ("plain", "states"))
    assert plain == 0
    assert states > 0


def test_reliability_has_a_line_a_model(tmp_path: Path) -> None:
    model = fit_survival(PRICES, TimeWindow(0, 30_000))
    checks = calibrate(model, PRICES, TimeWindow(30_000, 50_000))
    plot_reliability(tmp_path / "p.png", "t", {f"m{number}": checks for number in range(8)})
    assert imread(tmp_path / "p.png").std() > 0.05
    plot_reliability(tmp_path / "p.svg", "t", {"first.npz": checks, "second.npz": checks})
    text = (tmp_path / "p.svg").read_text()
    assert text.count("<!-- first.npz: Brier") == 2
    assert text.count("<!-- second.npz: Brier") == 2


def test_a_name_without_a_known_ending_is_refused() -> None:
    assert check_picture_name("a.pdf") == "pdf"
    with pytest.raises(InputError, match=r"a\.txt: the name's ending"):
        check_picture_name("a.txt")
