"""Whether a job can run under a scheme: as a policy that it takes, with a reliable tier."""

from proteus_spot.bidding.backtest.schemes import SchemeId
from proteus_spot.bidding.backtest.schemes.scheme_registry import scheme
from proteus_spot.studies.job_spec import MOST_RELIABLE
from proteus_spot.studies.plan.plan_spec import ON_DEMAND, PlanSpec, reliable_machines, scheme_of_policy
from proteus_spot.studies.plan.planned_job import PlannedJob, scheme_of


def why_not_run(name: str, spec: PlanSpec, job: PlannedJob) -> str:
    """Return why the job of `spec` cannot run under a scheme; empty: it can."""
    found, changes = scheme_of(name, spec, job)
    if found.rule is SchemeId.NONE:
        return _why_not_on_demand(spec, job)
    if found.policy is None:
        return "no policy decides so"
    if not found.setting(job.reference, 1, **changes).reliable_count:
        return "it holds no reliable machine, and a job holds at least 1"
    own = spec.policy
    if own is not None and (own == ON_DEMAND or scheme(name) != scheme(scheme_of_policy(own))):
        return f"the policy of {spec.job_file} is {own}"
    return ""


def _why_not_on_demand(spec: PlanSpec, job: PlannedJob) -> str:
    if job.machines > MOST_RELIABLE:
        return f"a job holds at most {MOST_RELIABLE} reliable machines"
    if spec.job_file is None:
        return ""
    kind = job.reference.instance_type.name
    is_own = reliable_machines(spec.reliable or "0") == (job.machines, kind)
    if spec.policy in (None, ON_DEMAND) and is_own:
        return ""
    return f"it wants policy: {ON_DEMAND} and reliable: {{count: {job.machines}, instance_type: {kind}}}"
