"""Effect of fewer or more reliable machines on a planned job."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from proteus_spot.bidding.backtest.schemes import SchemeId
from proteus_spot.bidding.economics.reliable_tier import ReliableNumber, cheapest_number, load_tier, weigh
from proteus_spot.bidding.market.money import to_dollars, usd
from proteus_spot.studies.plan.outlook import Outlook
from proteus_spot.studies.plan.plan_spec import PlanSpec
from proteus_spot.studies.plan.planned_job import PlannedJob, scheme_of

#: Numbers up to this one are tried, and the job's own.
_MOST = 4


@dataclass(frozen=True)
class Tried:
    """A number of reliable machines, weighed by the mean cost of a job in dollars, and what the jobs came to."""

    weighed: ReliableNumber
    outlook: Outlook


@dataclass(frozen=True)
class ReliableAdvice:
    """What the job would cost under `scheme` with each number, in their order; `own` is the job's."""

    scheme: str
    own: int
    tried: tuple[Tried, ...]

    @property
    def text(self) -> str:
        """One sentence for a reader."""
        weighed = [each.weighed for each in self.tried]
        best = cheapest_number(weighed)
        if best is None:
            return f"No number of reliable machines up to {weighed[-1].count} suffices: {weighed[-1].why_not}."
        held = next(each for each in weighed if each.count == self.own)
        if held.why_not:
            return f"{_machines(self.own)} will not do: {held.why_not}. {_machines(best.count)} would."
        if best.count != self.own:
            saved = usd(round((held.cost - best.cost) * 1e6), 2)
            return f"{_machines(best.count)} instead of {self.own} would save {saved} a job."
        least = min(weighed, key=lambda each: each.cost)
        if not least.why_not:
            return ""
        saved = usd(round((held.cost - least.cost) * 1e6), 2)
        return f"{_machines(least.count)} would save {saved} a job, but {least.why_not} (--reliable-tier)."


def counts_to_try(job: PlannedJob) -> list[int]:
    """Return the numbers of reliable machines to simulate; none if the job holds none."""
    return sorted({*range(1, _MOST + 1), job.reliable_count}) if job.reliable_count else []


def advise(
    name: str, spec: PlanSpec, job: PlannedJob, own: Outlook, tried: Callable[[PlannedJob], Outlook]
) -> ReliableAdvice | None:
    """Return the advice for the scheme `name`; None if it holds no reliable machines.

    Parameters
    ----------
    own : figures of the jobs with the job's own number.
    tried : returns the figures of a changed job, on the same starts.
    """
    scheme, changes = scheme_of(name, spec, job)
    setting = scheme.setting(job.reference, 1, **changes)
    if scheme.rule is SchemeId.NONE or not setting.reliable_count:
        return None
    outlooks = {
        count: own if count == job.reliable_count else tried(replace(job, reliable_count=count))
        for count in counts_to_try(job)
    }
    spot = min(job.reference.vcpus, job.max_spot_vcpus) if scheme.rule is SchemeId.STANDARD else job.max_spot_vcpus
    tier = load_tier(spec.reliable_tier, transient_vcpus=spot, vcpus=job.reliable_vcpus)
    weighed = weigh(tier, {count: float(each.cost_usd.mean()) for count, each in outlooks.items()})
    return ReliableAdvice(name, job.reliable_count, tuple(Tried(each, outlooks[each.count]) for each in weighed))


def as_json(advice: ReliableAdvice, job: PlannedJob) -> dict[str, Any]:
    """Return the advice as JSON-able values; dollars and hours are means of a job."""
    best = cheapest_number(each.weighed for each in advice.tried)
    return {
        "scheme": advice.scheme,
        "machines": advice.own,
        "cheapest": None if best is None else best.count,
        "text": advice.text,
        "numbers": [
            {
                "count": each.weighed.count,
                "usd_per_hour": to_dollars(each.weighed.count * job.reliable_micros),
                "ratio": each.weighed.ratio,
                "stage": each.weighed.stage,
                "cost_usd": round(float(each.outlook.cost_usd.mean()), 6),
                "cost_with_failures_usd": round(each.weighed.cost, 6),
                "hours": round(float(each.outlook.hours.mean()), 6),
                "keeps": each.outlook.keeps,
                "why_not": each.weighed.why_not,
            }
            for each in advice.tried
        ],
    }


def rows(advice: ReliableAdvice, job: PlannedJob) -> Sequence[tuple[str, ...]]:
    """Return the numbers as rows of text: machines, ratio, stage, price an hour, cost, time in hours, why not."""
    return [
        (
            f"{each.weighed.count}{' *' if each.weighed.count == advice.own else ''}",
            f"{each.weighed.ratio:.1f}",
            str(each.weighed.stage),
            usd(each.weighed.count * job.reliable_micros),
            f"${each.weighed.cost:,.2f}",
            f"{each.outlook.hours.mean():,.2f} h",
            each.weighed.why_not,
        )
        for each in advice.tried
    ]


def _machines(count: int) -> str:
    return f"{count} reliable machine{'s' * (count != 1)}"
