"""Seconds to read a price file, to fit, and to compute the paper's full table, beside the required ones."""

from functools import partial
from pathlib import Path
from typing import Any

from proteus_spot.benchmarks.figure import Figure, figure, seconds
from proteus_spot.benchmarks.market.prices import price_file
from proteus_spot.bidding.evictions.table import fit
from proteus_spot.bidding.market.model import DAY_S
from proteus_spot.flows.terminal.progress_bar import progress
from proteus_spot.infra.market_data.price_files import read_prices
from proteus_spot.studies.backtest.backtest_inputs import open_inputs
from proteus_spot.studies.backtest.backtest_spec import BacktestSpec, backtest_spec
from proteus_spot.studies.backtest.job_runs import plan, run_cells

_ROUNDS = 5
_MOST = "the most asked for"
#: Maximum seconds to read some 430,000 rows, to fit 50 markets x 60 days, and to compute the paper's full table.
_READ_S, _FIT_S, _TABLE_S = 1.0, 10.0, 180.0
_FIT_DAYS = 60
#: Number of cores for the full table.
_CORES = 2


def read_and_fit(scratch: Path) -> list[Figure]:
    """Measure, on one thread."""
    path, note = price_file(scratch)
    traces = read_prices(path)
    until_s = traces.last_s
    fitting = partial(fit, traces, until_s - _FIT_DAYS * DAY_S, until_s)
    fitting()
    reading = [seconds(lambda: read_prices(path)) for _ in range(_ROUNDS)]
    fits = [seconds(fitting) for _ in range(_ROUNDS)]
    events = sum(map(len, traces.values()))
    return [
        figure("backtest", f"read a price file of {events:,} events", "s", reading, [_READ_S], _MOST, note),
        figure("backtest", f"fit of {len(traces)} markets x {_FIT_DAYS} days", "s", fits, [_FIT_S], _MOST, note),
    ]


def whole_table(note: str, **asked: Any) -> Figure:
    """Measure once the table of every scheme and the bound, each zone and all, 2 h and 20 h, 1000 starts each.

    Reading and fitting count, compilation does not. `asked` are fields of `BacktestSpec`.
    """
    spec = backtest_spec(**asked)
    _compute(spec.model_copy(update={"starts": 2, "zones": ["all"]}))
    cells = 0

    def work() -> None:
        nonlocal cells
        cells = _compute(spec)

    took_s = seconds(work)
    what = f"the paper's whole table, {cells} cells of {spec.starts:,} jobs, {_CORES} threads"
    return figure("backtest", what, "s", [took_s], [_TABLE_S], _MOST, f"{note}; run once")


def _compute(spec: BacktestSpec) -> int:
    """Return the number of computed cells."""
    with progress() as report:
        planned = plan(open_inputs(spec, report), spec)
        return len(list(run_cells(planned, threads=_CORES, report=report)))
