"""Terminal output of a backtest on records of availability."""

from typing import Any

from proteus_spot.flows.terminal.tables import Column, show_table


def show_availability(result: dict[str, Any]) -> None:
    """Show the tables of a set, from the result that ``--json`` writes."""
    runs = result["runs"]
    title = f"{result['set']}: {runs[0]['starts']} starts each, {result['elapsed_s']:.1f} s"
    if "saved" in runs[0]:
        show_table(
            [Column("scheme"), Column("market"), *_right("prices", "deadline", "restart", "saved", "gain", "±")],
            [
                [
                    run["scheme"], run["where"], str(run["prices"]), f"{run['deadline_h']} h",
                    f"{run['restart_s'] // 60} min", f"{run['saved']:.3f}", f"{run['gain']:+.3f}",
                    f"{run['gain_half_width']:.3f}",
                ]
                for run in runs
            ],
            title=title,
            caption="saved: (on demand - cost) / (on demand - spot); gain over uniform-progress, same starts, 95 %",
        )  # fmt: skip
    else:
        show_table(
            [
                Column("scheme"),
                Column("where"),
                *_right("machines", "slack", "cost", "in time", "hours", "on demand", "lost"),
            ],
            list(_many(runs)),
            title=title,
            caption="cost against the cheapest region's price on demand; lost: machines a job that the market took",
        )  # fmt: skip
    goals = result["goals"]
    failed = [goal for goal in goals if not goal["holds"]]
    show_table(
        [Column("goal", least=40), *_right("ours", "asked", "holds")],
        [
            [goal["what"], f"{goal['ours']:.4g}", f"{goal['is']} {goal['asked']:.4g}", "yes" if goal["holds"] else "NO"]
            for goal in (goals if len(goals) <= _MOST_GOALS else failed)
        ],
        title=f"goals: {len(goals) - len(failed)} of {len(goals)} hold",
    )


#: Goals that are all listed; of more, those that do not hold.
_MOST_GOALS = 40


def _right(*names: str) -> list[Column]:
    return [Column(name, right=True) for name in names]


def _many(runs: list[dict[str, Any]]) -> list[list[str]]:
    rows: list[list[str]] = []
    last = None
    for run in runs:
        group = (run["machines"], run["slack"], run["where"])
        if last not in (None, group):
            rows.append([])
        last = group
        rows.append(
            [
                run["scheme"], run["where"], str(run["machines"]), f"{run['slack']:g}", f"{run['relative_cost']:.4f}",
                f"{run['in_time']:.1%}", _figure(run["hours"], ".1f"), _figure(run["on_demand_share"], ".1%"),
                _figure(run["lost"], ".1f"),
            ]
        )  # fmt: skip
    return rows


def _figure(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
