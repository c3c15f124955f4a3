"""A plan as JSON and as a picture."""

from pathlib import Path
from typing import Any

from proteus_spot.bidding.market.model import HOUR_S
from proteus_spot.bidding.market.money import to_dollars
from proteus_spot.reports.pictures.plan_pictures import Curve, draw_plan
from proteus_spot.studies.plan.outlook import ENOUGH, as_json
from proteus_spot.studies.plan.planner import JobPlan
from proteus_spot.studies.plan.reliable_machines import as_json as reliable_json
from proteus_spot.studies.times import iso, minute


def plan_json(plan: JobPlan, elapsed_s: float) -> dict[str, Any]:
    """Return the plan as ``--json`` writes it; dollars, hours, and shares of the starts."""
    job, spec, windows, kind = plan.job, plan.spec, plan.field.windows, plan.job.reference.instance_type
    return {
        "job": {
            "vcpu_hours": job.work_vcpu_s / HOUR_S,
            "deadline_h": spec.deadline_h,
            "budget_usd": spec.budget_usd,
            "cluster": {
                "machines": job.machines,
                "instance_type": kind.name,
                "vcpus": job.reference.vcpus,
                "usd_per_hour": to_dollars(kind.on_demand_micros * job.machines),
            },
            "cap_vcpus": job.max_spot_vcpus,
            "reliable": {
                "machines": job.reliable_count,
                "type": job.reliable_name,
                "usd_per_hour": to_dollars(job.reliable_count * job.reliable_micros),
            },
            "on_demand_usd": job.on_demand_usd,
        },
        "prices": plan.field.source,
        "fit": {"from": iso(windows.fit.from_s), "until": iso(windows.fit.until_s)},
        "evaluation": {"from": iso(windows.evaluation.from_s), "until": iso(windows.evaluation.until_s)},
        "window_hours": job.window_s / HOUR_S,
        "starts": spec.starts,
        "settings": spec.model_dump(exclude={"notes"}),
        "notes": list(plan.notes),
        "enough": ENOUGH,
        "recommendation": {
            "scheme": plan.recommendation.scheme,
            "keeps_enough": plan.recommendation.enough,
            "text": plan.recommendation.text,
            "cheaper": plan.recommendation.cheaper,
            "on_demand_fallback": plan.fallback,
        },
        "schemes": [
            {"scheme": each.scheme, "cannot_run": plan.why_not[each.scheme] or None, **as_json(each)}
            for each in plan.outlooks
        ],
        "reliable_machines": None if plan.reliable is None else reliable_json(plan.reliable, job),
        "candidates": [
            {
                "market": str(each.market),
                "price_usd": to_dollars(each.price_micros),
                "on_demand_usd": to_dollars(each.on_demand_micros),
                "share_of_on_demand": each.price_micros / each.on_demand_micros,
                "free_hours_share": each.free_share,
                "free_minutes": None if each.free_s is None else each.free_s / 60,
                **as_json(each.alone),
            }
            for each in plan.candidates
        ],
        "elapsed_s": round(elapsed_s, 3),
    }


def draw(target: str, plan: JobPlan) -> None:
    """Draw how cost and finishing time are distributed under each scheme."""
    job, until_s = plan.job, plan.field.windows.evaluation.until_s
    draw_plan(
        target,
        f"{job.work_vcpu_s / HOUR_S:,.4g} vCPU-hours on {Path(plan.field.source).name}, "
        f"{plan.spec.starts} starts until {minute(until_s)[:10]}",
        [Curve(plan.shown(each.scheme), each.cost_usd, each.hours, each.finished) for each in plan.outlooks],
        deadline_h=None if job.deadline_s is None else job.deadline_s / HOUR_S,
        budget_usd=None if job.budget_micros is None else to_dollars(job.budget_micros),
        enough=ENOUGH,
    )
