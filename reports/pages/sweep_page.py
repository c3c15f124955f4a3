"""The report of a sweep, and its page in the Prefect UI: figures, pictures, tables of trials and of machines."""

import base64
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from proteus_spot.bidding.market.money import usd
from proteus_spot.reports.pages.figures_page import BacktestPage, Picture
from proteus_spot.reports.pages.job_markdown import text
from proteus_spot.reports.pages.job_page import PageFigure, Table
from proteus_spot.reports.pages.page_tables import elapsed, utc
from proteus_spot.reports.sweep_view import (
    MOST_DRAWN,
    STATES,
    SweepView,
    TrialLine,
    params_text,
    trial_name,
    value_text,
)

#: Columns of the table of trials.
TRIAL_COLUMNS = (
    *("trial", "state", "setting", "steps", "metric", "prediction", "spent", "refunded", "evictions", "machine", "why"),
)
_NUMERIC = frozenset({3, 4, 5, 6, 7, 8})
#: Maximum number of rows of a table in the Prefect UI.
_MOST_ROWS = 200


#: The pictures of a report: key -> title and caption.
_PICTURES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "time": (
            "Trials over time",
            (
                "Prices as decisions saw them, and below them, on the same axis, the machines of each trial in the "
                "colour of their market. Red: the market took the machine. Framed in black: on demand."
            ),
        ),
        "curves": (
            "Curves",
            (
                "The metric by step; the best trials are coloured. A dot at the last step is the prediction for a "
                "trial that is not there, with its standard deviation."
            ),
        ),
        "parallel": (
            "Parallel coordinates",
            "A line is a setting with a value; the darker or thicker it is, the better is its metric.",
        ),
        "importance": (
            "Importance of the parameters",
            "The share of the metric's variation that each parameter explains, by fANOVA on the trials with a value.",
        ),
        "contour": ("Contours", "The metric between the trials, for each pair of parameters; at most four of them."),
        "dollars": (
            "Dollars by trial",
            "What was paid for the machines of each trial, and what the market refunded because it took them.",
        ),
    }
)


def sweep_page(view: SweepView, drawn: Mapping[str, bytes]) -> BacktestPage:
    """Return the report of a sweep as it stands.

    Parameters
    ----------
    drawn : the pictures as SVG: ``time``, ``curves``, ``parallel``, ``dollars``, and of a study ``importance``
        and ``contour``.
    """
    notes = [
        "Times are h:mm:ss of market time after the sweep was recorded.",
        "A trial stands at the step of its newest uploaded state when it has no machine.",
        "Repeated steps are those that were lost with a machine and run again.",
    ]
    if len(view.trials) > MOST_DRAWN:
        notes.append(
            f"The pictures show the {MOST_DRAWN} best of {len(view.trials)} trials; the table has all of them."
        )
    return BacktestPage(
        title=view.sweep_id,
        period=f"{state_text(view)}; recorded {utc(view.begun_s)} UTC (market time), "
        f"{'ended' if view.ended_s is not None else 'last record'} after {elapsed(view.market_s)}",
        warnings=(view.why,) if view.why and view.state != "stopped" else (),
        notes=tuple(notes),
        figures=sweep_figures(view),
        pictures=tuple(Picture(key, *_PICTURES[key], svg) for key, svg in drawn.items()),
        tables=(trial_table(view), machine_table(view)),
        kind="sweep",
    )


def sweep_figures(view: SweepView) -> tuple[PageFigure, ...]:
    """Return the figures at the top of a report."""
    best, steps = view.best, sum(trial.steps for trial in view.trials)
    repeated = sum(trial.repeated_steps for trial in view.trials)
    charged = view.spent_micros + view.refunded_micros
    limit = "no budget" if view.budget_micros is None else f"of a budget of {usd(view.budget_micros, 2)}"
    return (
        PageFigure(
            f"best {view.metric}", value_text(best.value) if best else "-", best.name if best else "no value yet"
        ),
        PageFigure("spent", usd(view.spent_micros), limit),
        PageFigure(
            "refunded",
            usd(view.refunded_micros),
            f"{view.refunded_micros / charged:.0%} of what was charged" if charged else "",
        ),
        PageFigure("trials", f"{len(view.trials)} of {view.trial_count}", counts_text(view)),
        PageFigure("steps", str(steps), f"{repeated} repeated"),
        PageFigure(
            "checkpoints",
            "-" if view.checkpoint_share is None else f"{view.checkpoint_share:.1%}",
            "of the machines' time: saved, uploaded, restored",
        ),
        PageFigure("evictions", str(view.evictions), f"{len(view.machines)} machines"),
        PageFigure("market time", elapsed(view.market_s)),
    )


def state_text(view: SweepView) -> str:
    """Return the state of a sweep with its reason."""
    return f"{view.state} ({view.why})" if view.why else view.state


def counts_text(view: SweepView) -> str:
    """Return how many trials are in each state, as in ``3 running, 5 waiting``."""
    return ", ".join(f"{view.counts[state]} {state}" for state in STATES if state in view.counts)


def trial_cells(trial: TrialLine) -> tuple[str, ...]:
    """Return the row of a trial; its columns are `TRIAL_COLUMNS`."""
    predicted = value_text(trial.predicted)
    if trial.predicted is not None and trial.predicted_std is not None:
        predicted += f" ± {trial.predicted_std:.2g}"
    return (
        trial.name,
        trial.state,
        params_text(trial.params),
        str(trial.steps),
        value_text(trial.value),
        predicted,
        usd(trial.spent_micros),
        usd(trial.refunded_micros),
        str(trial.evictions),
        trial.market or "-",
        trial.why,
    )


def trial_table(view: SweepView) -> Table:
    """Return the trials, the best first."""
    rows = tuple(trial_cells(trial) for trial in view.ranked())
    return Table("trials", "Trials, the best first", TRIAL_COLUMNS, rows, _NUMERIC)


def machine_table(view: SweepView) -> Table:
    """Return the machines in the order of their launches."""
    rows = tuple(
        (
            trial_name(machine.trial),
            machine.market,
            "on demand" if machine.bid_micros is None else usd(machine.bid_micros),
            elapsed(machine.from_s - view.begun_s),
            "-" if machine.until_s is None else elapsed(machine.until_s - view.begun_s),
            machine.cause or "runs",
            usd(machine.spent_micros),
            usd(machine.refunded_micros),
        )
        for machine in view.machines
    )
    columns = ("trial", "market", "bid", "from", "until", "end", "spent", "refunded")
    return Table("machines", "Machines", columns, rows, frozenset({2, 3, 4, 6, 7}))


def trial_rows(view: SweepView) -> list[dict[str, Any]]:
    """Return the trials for a table in the Prefect UI, the best first."""
    return [dict(zip(TRIAL_COLUMNS, trial_cells(trial), strict=True)) for trial in view.ranked()[:_MOST_ROWS]]


def sweep_markdown(view: SweepView, curves: bytes = b"", commands: Sequence[str] = ()) -> str:
    """Return the page of a sweep in the Prefect UI: state, figures, curves, and what a user may type next.

    Parameters
    ----------
    curves : PNG of the curves; empty: none is shown.
    """
    lines = [("State", state_text(view), f"{view.done_share:.0%} done")]
    lines += [(figure.label, figure.value, figure.note) for figure in sweep_figures(view)]
    rows = ["|  |  |  |", "| --- | --- | --- |", *(f"| {' | '.join(map(text, line))} |" for line in lines)]
    parts = [f"# {text(view.sweep_id)}: {text(state_text(view))}", "\n".join(rows)]
    if view.best is not None:
        parts.append(f"Best setting: {text(params_text(view.best.params))}")
    if curves:
        picture = base64.b64encode(curves).decode()
        parts.append(f"![{text(view.metric)} by step](data:image/png;base64,{picture})")
    if commands:
        parts += ["## Next", "```\n" + "\n".join(commands) + "\n```"]
    return "\n\n".join(parts)
