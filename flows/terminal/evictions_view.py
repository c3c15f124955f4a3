"""Terminal output of eviction models and their checks."""

from typing import TYPE_CHECKING

from proteus_spot.flows.terminal.tables import Column, show_lines, show_table

if TYPE_CHECKING:
    from proteus_spot.bidding.evictions.summary import ModelSummary
    from proteus_spot.studies.market_data.eviction_models import Check
    from proteus_spot.studies.market_data.predictors import FittedPredictors

#: Ranks of two columns: they are left out before the column of any bid.
_MEDIAN_RANK, _BIDS_RANK = 100, 101
#: Title and rank of the scores of a model.
_SCORES = (
    *(("within", 0), ("forecasts", 4), ("taken", 3), ("predicted", 5), ("Brier", 0)),
    *(("below the first", 2), ("off", 6)),
)


def show_model(file: str, found: "ModelSummary") -> None:
    """Print a model: its markets by bid, and the effect of its conditions."""
    window = "" if found.fitted is None else f", fitted on {found.fitted} UTC"
    states = "" if found.n_states == 1 else f", {found.n_states} states each"
    show_lines(f"{file}: {found.model}, {len(found.markets)} markets{states}{window}")
    rows = []
    for market in found.markets:
        cells = [
            f"{_percent(bid.taken_15_min)}/{_percent(bid.taken_1_h)}/{_percent(bid.taken_24_h)}" for bid in market.bids
        ]
        grants = f"{market.grants:,}" if market.grants else "-"
        rows.append([market.market, grants, *cells, f"{market.bids[0].median_s / 60:.0f} min"])
    bids = [Column(f"+{bid.delta_usd:g}", rank, right=True) for rank, bid in enumerate(found.markets[0].bids)]
    show_table(
        [
            Column("market"),
            Column("bids", _BIDS_RANK, right=True),
            *bids,
            Column("median", _MEDIAN_RANK, right=True),
        ],
        rows,
        caption=(
            "percent of bids, by dollars above the price, that are taken within 15 min/1 h/24 h; median: of the "
            "lowest bid's evictions within the hour"
        ),
    )
    if found.states:
        _show_states(found)


def _show_states(found: "ModelSummary") -> None:
    rows = []
    before = ""
    for state in found.states:
        shares = (f"{share:.1%}" for share in (state.share, state.taken_15_min, state.taken_1_h))
        rows.append(["" if state.what == before else state.what, state.bin, *shares])
        before = state.what
    figures = (("share of bids", 1), ("taken within 15 min", 2), ("1 h", 0))
    show_table(
        [Column("known now"), Column(""), *(Column(title, rank, right=True) for title, rank in figures)],
        rows,
        caption="bids of one cent above the price, over all markets; the other conditions as they came",
    )


def show_fit(file: str, found: "FittedPredictors") -> None:
    """Print fitted predictors: their markets, and their calibration on the part of the window that was left out."""
    model = found.model
    show_lines(
        f"{file}: {model.name}, {len(model.predictors)} of {len(model.markets)} markets, fitted on {model.fitted} UTC"
    )
    for market, why in model.without.items():
        show_lines(f"{market}: uses the table ({why})")
    rows = [
        [
            f"{check.horizon_s // 60} min",
            f"{check.forecasts:,}",
            f"{check.base_rate:.2%}",
            f"{check.base_rate + check.bias:.2%}",
            f"{check.brier:.4f} ± {check.brier_se:.4f}",
            f"{check.calibration_error:.4f}",
        ]
        for check in found.checks
    ]
    titles = ("within", "forecasts", "taken", "predicted", "Brier", "off")
    show_table(
        [Column(title, rank, right=True) for rank, title in enumerate(titles)],
        rows,
        caption=f"checked on {found.window} UTC; off: mean distance of the forecasts from the outcomes",
    )


def show_check(found: "Check") -> None:
    """Print the scores of each model, and its gain over the first."""
    show_lines(f"checked on {found.window} UTC")
    rows = []
    first = next(iter(found.found))
    for name, checks in found.found.items():
        for check, gain in zip(checks, found.gains(name), strict=True):
            better = "" if name == first else "-" if gain is None else f"{gain[0]:+.4f} ± {gain[1]:.4f}"
            rows.append(
                [
                    f"{name} ({found.kinds[name]})",
                    f"{check.horizon_s // 60} min",
                    f"{check.forecasts:,}",
                    f"{check.base_rate:.2%}",
                    f"{check.base_rate + check.bias:.2%}",
                    f"{check.brier:.4f} ± {check.brier_se:.4f}",
                    better,
                    f"{check.calibration_error:.4f}",
                ]
            )
    show_table(
        [Column("model"), *(Column(title, rank, right=True) for title, rank in _SCORES)],
        rows,
        caption=("± is the standard error, sampled by days; off: mean distance of the forecasts from the outcomes"),
    )


def _percent(share: float) -> str:
    digits = 0 if share < 0.00005 or share >= 0.0995 else 1 if share >= 0.00995 else 2
    return f"{100 * share:.{digits}f}"
