"""Terminal output of a plan: the schemes, the markets and the recommendation."""

from typing import TYPE_CHECKING

from proteus_spot.bidding.market.model import HOUR_S
from proteus_spot.bidding.market.money import usd
from proteus_spot.flows.terminal.run_view import clock_time
from proteus_spot.flows.terminal.tables import Column, show_lines, show_table, show_text
from proteus_spot.studies.plan.outlook import Outlook, percent, spread
from proteus_spot.studies.plan.reliable_machines import rows

if TYPE_CHECKING:
    from proteus_spot.studies.plan.live_plan import LivePlan
    from proteus_spot.studies.plan.planner import JobPlan, PlannedScheme

#: Maximum number of candidates that are shown.
SHOWN = 12
#: Title and rank of the columns; the first is a name, the others figures.
_SCHEMES = (
    *(("scheme", 0), ("cost", 0), ("p10", 6), ("p50", 8), ("p90", 3), ("of on demand", 2)),
    *(("time", 0), ("p10", 9), ("p50", 10), ("p90", 5)),
)
_SCHEMES_END = (("unfinished", 4), ("evictions", 7), ("free", 11))
_CANDIDATES = (
    *(("market", 0), ("now", 3), ("of on demand", 5), ("free hours", 7), ("after", 8)),
    *(("cost", 0), ("p10", 9), ("p90", 4), ("time", 0), ("p90", 6)),
)
_CANDIDATES_END = (("unfinished", 10),)
_RELIABLE = (("machines", 0), ("ratio", 4), ("stage", 5), ("an hour", 3), ("with failures", 0), ("time", 2))
#: Rank of the probability that a limit is exceeded.
_LIMIT_RANK = 1


def show(plan: "JobPlan") -> None:
    """Show the plan on standard output."""
    show_lines(_job(plan), "")
    _show_schemes(plan)
    if plan.candidates:
        show_lines("")
        _show_candidates(plan)
    hidden = len(plan.candidates) - SHOWN
    if hidden > 0:
        show_lines(f"... and {hidden} more; --json FILE has them all")
    if plan.reliable is not None:
        show_lines("")
        _show_reliable(plan)
    text = plan.recommendation.text
    show_lines("")
    show_lines(text[0].upper() + text[1:], style="bold")
    if plan.recommendation.cheaper:
        show_lines(plan.recommendation.cheaper)
    if plan.reliable is not None and plan.reliable.text:
        show_lines(plan.reliable.text)
    if plan.fallback:
        show_lines(plan.fallback, style="bold")


def _job(plan: "JobPlan") -> str:
    job = plan.job
    kind = job.reference.instance_type
    reliable = "no reliable machine"
    if job.reliable_count:
        reliable = f"{job.reliable_count} reliable machines of {job.reliable_name} ({usd(job.reliable_micros)}/h each)"
        if job.reliable_count == 1:
            reliable = f"1 reliable machine of {job.reliable_name} ({usd(job.reliable_micros)}/h)"
    spot = f"; else at most {job.max_spot_vcpus:,} spot vCPUs and {reliable}" if job.max_spot_vcpus else ""
    return (
        f"{job.work_vcpu_s / HOUR_S:,.6g} vCPU-hours: on demand {job.machines:,} x {kind.name} "
        f"({job.reference.vcpus:,} vCPUs, {usd(job.machines * kind.on_demand_micros)}/h){spot}"
    )


def _columns(*titles: tuple[str, int]) -> list[Column]:
    return [Column(title, rank, right=number > 0) for number, (title, rank) in enumerate(titles)]


def _show_schemes(plan: "JobPlan") -> None:
    cells, best = [], set()
    for number, outlook in enumerate(plan.outlooks):
        cost, hours = spread(outlook.cost_usd), spread(outlook.hours)
        if outlook.scheme == plan.recommendation.scheme:
            best.add(number)
        cells.append(
            [
                plan.shown(outlook.scheme),
                *(f"${value:,.2f}" for value in (cost.mean, cost.p10, cost.p50, cost.p90)),
                f"{outlook.relative_cost:.1%}",
                *(clock_time(value * HOUR_S) for value in (hours.mean, hours.p10, hours.p50, hours.p90)),
                *_chances(outlook),
                f"{outlook.evictions:.1f}",
                f"{outlook.free_share:.0%}",
            ]
        )
    show_table(_columns(*_SCHEMES, *_limits(plan), *_SCHEMES_END), cells, bold=best)
    for scheme, why in plan.why_not.items():
        if why:
            show_lines(f"* {scheme}: for comparison, cannot be run by this job: {why}")


def _show_candidates(plan: "JobPlan") -> None:
    show_table(
        _columns(*_CANDIDATES, *_limits(plan), *_CANDIDATES_END),
        [_candidate(each) for each in plan.candidates[:SHOWN]],
        title=f"Each market alone, under {plan.alone}: what the job would have cost lately",
    )


def _show_reliable(plan: "JobPlan") -> None:
    assert plan.reliable is not None, "checked by the caller"
    show_table(
        [*_columns(*_RELIABLE), Column("will not do", 1, least=24)],
        list(rows(plan.reliable, plan.job)),
        title=f"Numbers of reliable machines, under {plan.reliable.scheme} (*: the job's own)",
    )


def _candidate(planned: "PlannedScheme") -> list[str]:
    cost, hours = spread(planned.alone.cost_usd), spread(planned.alone.hours)
    return [
        str(planned.market),
        usd(planned.price_micros),
        f"{planned.price_micros / planned.on_demand_micros:.0%}",
        "-" if planned.free_share is None else percent(planned.free_share),
        "-" if planned.free_s is None else f"{planned.free_s / 60:.0f} min",
        *(f"${value:,.2f}" for value in (cost.mean, cost.p10, cost.p90)),
        *(clock_time(value * HOUR_S) for value in (hours.mean, hours.p90)),
        *_chances(planned.alone),
    ]


def _limits(plan: "JobPlan") -> list[tuple[str, int]]:
    named = (("late", plan.job.deadline_s), ("over budget", plan.job.budget_micros))
    return [(name, _LIMIT_RANK) for name, limit in named if limit is not None]


def _chances(outlook: Outlook) -> list[str]:
    """Return the shares of starts that exceeded each given limit, and of those that left the job unfinished."""
    shares = (outlook.in_time, outlook.in_budget, float(outlook.finished.mean()))
    return [percent(1 - share) for share in shares if share is not None]


def show_live(made: "LivePlan") -> None:
    """Show the plan of a job by what is known of its markets."""
    figures = [
        ("cost", made.cost_usd, lambda value: f"${value:,.4f}"),
        ("hours", made.hours, lambda value: f"{value:,.1f}"),
    ]
    columns = (Column("figure"), *(Column(title, right=True) for title in ("mean", "one in ten below", "half", "nine")))
    show_table(columns, [(name, *map(form, (of.mean, of.p10, of.p50, of.p90))) for name, of, form in figures])
    limits = [("deadline", made.in_time), ("budget", made.in_budget)]
    chances = [f"keeps its {name} in {share:.0%}" for name, share in limits if share is not None]
    parts = [*chances, f"on-demand machines finish it in {made.on_demand:.0%}", f"{made.losses:.1f} machines are lost"]
    if made.finished < 1:
        parts.append(f"{made.finished:.0%} end within two weeks")
    show_text(f"Of {made.starts} futures: {'; '.join(parts)}.")
    for known in made.known:
        speed = made.speeds.get(known.market.instance_type)
        show_lines(f"{known.market}: {known.in_words()}" + (f", {speed.in_words(known.at_s)}" if speed else ""))
