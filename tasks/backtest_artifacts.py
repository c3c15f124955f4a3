"""Progress, table and pictures of a backtest in the Prefect UI, and its report in the blob store."""

import base64
import hashlib
import json
import logging
from typing import Any
from uuid import UUID

from prefect.artifacts import (
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)

from proteus_spot.infra.clock import SystemClock
from proteus_spot.reports.pages.figures_page import render
from proteus_spot.reports.pictures.backtest_pictures import by_zone, cost_and_time
from proteus_spot.reports.pictures.figures import png
from proteus_spot.studies.backtest.backtest_page import bars, page
from proteus_spot.studies.backtest.backtest_spec import BacktestSpec
from proteus_spot.studies.backtest.comparison import Comparison
from proteus_spot.studies.backtest.result_tables import flat
from proteus_spot.tasks.task_runtime import current_runtime, runtime_task

_log = logging.getLogger(__name__)
#: Real seconds between two updates of the progress in the UI.
_EVERY_S = 2.0
#: Keys of the artifacts.
PROGRESS, TABLE, PICTURE = "backtest-progress", "backtest-table", "backtest-picture"


@runtime_task("compare schemes")
def compare(spec: BacktestSpec) -> Comparison:
    """Run the backtest of `spec`."""
    comparison = Comparison(spec, report=_Progress().show)
    for note in comparison.field.notes:
        _log.warning("%s", note)
    comparison.run()
    return comparison


@runtime_task("publish table")
def publish_table(compared: Comparison) -> None:
    """Show every figure as a table."""
    rows = [{name: _short(value) for name, value in flat(run).items()} for run in compared.result["runs"]]
    fit = compared.result["fit"]
    create_table_artifact(rows, key=TABLE, description=f"Schemes on {fit['prices']}, fit until {fit['until']}")


@runtime_task("publish pictures")
def publish_pictures(compared: Comparison) -> None:
    """Write the report to the blob store; show its URL, and Figures 1 and 9.

    Notes
    -----
    An image artifact would print the whole data URL as text below the picture; Markdown shows the picture alone.
    """
    spec, rows = compared.spec, compared.result["runs"]
    lines = list(compared.field.notes)
    text = render(page(compared.field, spec, compared.runs, compared.result)).encode()
    lines.insert(0, f"Report: `{_save(compared, text)}`")
    every = bars(spec, rows, max(spec.hours), baseline=True)
    bidding = bars(spec, rows, max(spec.hours), baseline=False)
    for what, figure in (
        (f"cost and run time, {max(spec.hours)} h", cost_and_time(every, len(every.groups) - 1)),
        (f"cost and run time by zone, {max(spec.hours)} h", by_zone(bidding)),
    ):
        lines.append(f"![{what}](data:image/png;base64,{base64.b64encode(png(figure)).decode()})")
    create_markdown_artifact("\n\n".join(lines), key=PICTURE, description=f"Schemes on {compared.field.source}")


def _save(compared: Comparison, text: bytes) -> str:
    """Write the report under the digest of its request, so that the same request replaces it."""
    blobs = current_runtime().blobs
    asked = json.dumps(compared.spec.model_dump(), sort_keys=True).encode()
    name = f"backtests/{hashlib.sha256(asked).hexdigest()[:16]}.html"
    blobs.write_bytes(name, text)
    return blobs.url_of(name)


def _short(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value


class _Progress:
    """Progress of the backtest, in the Prefect UI."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._shown_s = float("-inf")
        self._artifact: UUID | None = None

    def show(self, done: int, of: int, what: str) -> None:
        """Show the progress every `_EVERY_S` seconds, and at the end."""
        now_s = self._clock.now_s()
        if now_s - self._shown_s < _EVERY_S and done < of:
            return
        self._shown_s = now_s
        percent = 100.0 * done / of if of else 0.0
        if self._artifact is None:
            made = create_progress_artifact(percent, key=PROGRESS, description=what)
            self._artifact = made if isinstance(made, UUID) else None
        else:
            update_progress_artifact(self._artifact, percent, description=what)
