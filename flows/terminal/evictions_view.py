"""How eviction models and their checks look on a terminal."""

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from flows.terminal.output import output_console

if TYPE_CHECKING:
    from bidding.evictions.summary import ModelSummary
    from tasks.market_data.eviction_models import Check

#: Columns where there is no terminal.
_WIDTH = 180


def show_model(file: str, found: "ModelSummary") -> None:
    """Print a model: its markets by bid, and what its conditions mean."""
    console = output_console(_WIDTH)
    window = "" if found.fitted is None else f", fitted on {found.fitted} UTC"
    states = "" if found.n_states == 1 else f", {found.n_states} states each"
    console.print(f"{file}: {found.model}, {len(found.markets)} markets{states}{window}", soft_wrap=True, markup=False)
    table = _table("market")
    table.add_column("bids", justify="right", no_wrap=True)
    for bid in found.markets[0].bids:
        table.add_column(f"+{bid.delta_usd:g}", justify="right", no_wrap=True)
    table.add_column("median", justify="right", no_wrap=True)
    for market in found.markets:
        cells = [
            f"{_percent(bid.taken_15_min)}/{_percent(bid.taken_1_h)}/{_percent(bid.taken_24_h)}" for bid in market.bids
        ]
        grants = f"{market.grants:,}" if market.grants else "-"
        table.add_row(market.market, grants, *cells, f"{market.bids[0].median_s / 60:.0f} min")
    _print(
        console,
        table,
        "percent of bids, so many dollars above the price, that are taken within 15 min/1 h/24 h; median: of the lowest "
        "bid's evictions within the hour",
    )
    if found.states:
        _show_states(console, found)


def _show_states(console: Console, found: "ModelSummary") -> None:
    table = _table("known now")
    table.add_column("", no_wrap=True)
    for title in ("share of bids", "taken within 15 min", "1 h"):
        table.add_column(title, justify="right", no_wrap=True)
    before = ""
    for state in found.states:
        shares = (f"{share:.1%}" for share in (state.share, state.taken_15_min, state.taken_1_h))
        table.add_row("" if state.what == before else state.what, state.bin, *shares)
        before = state.what
    _print(console, table, "bids of one cent above the price, over all markets; the other conditions as they came")


def show_check(found: "Check") -> None:
    """Print the scores of each model, and by how much it is better than the first."""
    console = output_console(_WIDTH)
    console.print(f"checked on {found.window} UTC", soft_wrap=True)
    table = _table("model")
    for title in ("within", "forecasts", "taken", "foretold", "Brier", "below the first", "off"):
        table.add_column(title, justify="right", no_wrap=True)
    first = next(iter(found.found))
    for name, checks in found.found.items():
        for check, gain in zip(checks, found.gains(name), strict=True):
            better = "" if name == first else "-" if gain is None else f"{gain[0]:+.4f} ± {gain[1]:.4f}"
            table.add_row(
                f"{name} ({found.kinds[name]})",
                f"{check.horizon_s // 60} min",
                f"{check.forecasts:,}",
                f"{check.base_rate:.2%}",
                f"{check.base_rate + check.bias:.2%}",
                f"{check.brier:.4f} ± {check.brier_se:.4f}",
                better,
                f"{check.calibration_error:.4f}",
            )
    _print(
        console,
        table,
        "± is the standard error, with days as what is drawn; off: mean distance of the forecasts from what came true",
    )


def _table(first: str) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0))
    table.add_column(first, no_wrap=True)
    return table


def _print(console: Console, table: Table, caption: str) -> None:
    """Print a table, and below it what its figures are; a caption of its own would be broken to its width."""
    console.print(table)
    console.print(caption, style="dim", soft_wrap=True)


def _percent(share: float) -> str:
    digits = 0 if share < 0.00005 or share >= 0.0995 else 1 if share >= 0.00995 else 2
    return f"{100 * share:.{digits}f}"
