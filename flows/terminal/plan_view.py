"""What a plan shows on a terminal: the schemes, the markets, and what to do."""

from typing import TYPE_CHECKING

from rich.table import Table

from bidding.market.model import HOUR_S
from bidding.market.money import usd
from flows.terminal.output import output_console
from flows.terminal.run_view import clock_time
from tasks.plan.outlook import Outlook, percent, spread
from tasks.plan.reliable_counts import rows

if TYPE_CHECKING:
    from tasks.plan.planner import JobPlan, PlannedScheme

#: Of the candidates, the first so many are shown.
SHOWN = 12
#: Columns where there is no terminal.
_WIDTH = 170
_SCHEMES = ("scheme", "cost", "p10", "p50", "p90", "of on demand", "time", "p10", "p50", "p90")
_CANDIDATES = ("market", "now", "of on demand", "free hours", "after", "cost", "p10", "p90", "time", "p90")
_RELIABLE = ("machines", "ratio", "stage", "an hour", "with failures", "time", "will not do")


def show(plan: "JobPlan") -> None:
    """Show the plan on standard output."""
    console = output_console(_WIDTH)
    console.print(_job(plan), markup=False, soft_wrap=True)
    console.print()
    console.print(_schemes(plan))
    console.print()
    console.print(_candidates(plan))
    hidden = len(plan.candidates) - SHOWN
    if hidden > 0:
        console.print(f"... and {hidden} more; --json FILE has them all", markup=False)
    if plan.reliable is not None:
        console.print()
        console.print(_reliable(plan))
    console.print()
    text = plan.recommendation.text
    console.print(text[0].upper() + text[1:], style="bold", markup=False, soft_wrap=True)
    if plan.reliable is not None and plan.reliable.text:
        console.print(plan.reliable.text, markup=False, soft_wrap=True)


def _job(plan: "JobPlan") -> str:
    job = plan.job
    kind = job.reference.instance_type
    reliable = "no reliable machine"
    if job.reliable_count:
        reliable = f"{job.reliable_count} reliable machines of {job.reliable_name} ({usd(job.reliable_micros)}/h each)"
        if job.reliable_count == 1:
            reliable = f"1 reliable machine of {job.reliable_name} ({usd(job.reliable_micros)}/h)"
    return (
        f"{job.work_vcpu_s / HOUR_S:,.6g} vCPU-hours: on demand {job.machines:,} x {kind.name} ({job.reference.vcpus:,} vCPUs, "
        f"{usd(job.machines * kind.on_demand_micros)}/h); else at most {job.max_spot_vcpus:,} spot vCPUs and {reliable}"
    )


def _table(title: str, left: int, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number < left else "right", no_wrap=True)
    return table


def _schemes(plan: "JobPlan") -> Table:
    table = _table("", 1, *_SCHEMES, *_limits(plan), "unfinished", "evictions", "free")
    for each in plan.outlooks:
        cost, hours = spread(each.cost_usd), spread(each.hours)
        table.add_row(
            each.scheme,
            *(f"${value:,.2f}" for value in (cost.mean, cost.p10, cost.p50, cost.p90)),
            f"{each.relative_cost:.1%}",
            *(clock_time(value * HOUR_S) for value in (hours.mean, hours.p10, hours.p50, hours.p90)),
            *_chances(each),
            f"{each.evictions:.1f}",
            f"{each.free_share:.0%}",
            style="bold" if each.scheme == plan.recommendation.scheme else "",
        )
    return table


def _candidates(plan: "JobPlan") -> Table:
    title = "Each market alone, under best: what the job would have cost lately"
    table = _table(title, 1, *_CANDIDATES, *_limits(plan), "unfinished")
    for each in plan.candidates[:SHOWN]:
        table.add_row(*_candidate(each))
    return table


def _reliable(plan: "JobPlan") -> Table:
    assert plan.reliable is not None, "looked at before"
    title = f"Numbers of reliable machines, under {plan.reliable.scheme} (*: the job's own)"
    table = _table(title, 1, *_RELIABLE)
    table.columns[-1].justify, table.columns[-1].no_wrap = "left", False
    for row in rows(plan.reliable, plan.job):
        table.add_row(*row)
    return table


def _candidate(each: "PlannedScheme") -> list[str]:
    cost, hours = spread(each.alone.cost_usd), spread(each.alone.hours)
    return [
        str(each.market),
        usd(each.price_micros),
        f"{each.price_micros / each.on_demand_micros:.0%}",
        "-" if each.free_share is None else percent(each.free_share),
        "-" if each.free_s is None else f"{each.free_s / 60:.0f} min",
        *(f"${value:,.2f}" for value in (cost.mean, cost.p10, cost.p90)),
        *(clock_time(value * HOUR_S) for value in (hours.mean, hours.p90)),
        *_chances(each.alone),
    ]


def _limits(plan: "JobPlan") -> list[str]:
    named = (("late", plan.job.deadline_s), ("over budget", plan.job.budget_micros))
    return [name for name, limit in named if limit is not None]


def _chances(each: Outlook) -> list[str]:
    """Return how often the limits that there are were not kept, and how often the job was not done."""
    shares = (each.in_time, each.in_budget, float(each.finished.mean()))
    return [percent(1 - share) for share in shares if share is not None]
