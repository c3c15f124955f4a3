"""What the engine of a sweep decides from: the plan of a description, and events of what trials report."""

from proteus_spot.bidding.tuning.sweep_events import TrialReported
from proteus_spot.bidding.tuning.sweep_plan import Direction, SweepPlan
from proteus_spot.bidding.tuning.trials import Deployment
from proteus_spot.infra.trials.trial_documents import TrialReport
from proteus_spot.tasks.sweeps.samplers import is_adaptive
from proteus_spot.tasks.sweeps.sweep_spec import SweepSpec


def search_plan(spec: SweepSpec) -> SweepPlan:
    """Return the plan of the search; billing and real times have their defaults."""
    return SweepPlan(
        trials=spec.trial_count,
        max_trial_steps=spec.max_trial_steps,
        direction=Direction(spec.metric.direction),
        bound=spec.metric.bound,
        stop=spec.stop,
        theta=spec.theta,
        mcnt=spec.mcnt,
        parallel=spec.parallel,
        adaptive=is_adaptive(spec),
        seed=spec.seed,
        on_demand=spec.on_demand,
        probe=True,
    )


def report_event(deployment: Deployment, report: TrialReport, at_s: int) -> TrialReported | None:
    """Return the event of what is new in the report of a deployment; None if nothing is."""
    if deployment.ended:
        return None
    values = tuple((step, value) for step, value in report.values if step > deployment.reported_step)
    is_saved = report.saved_step is not None and report.saved_step > deployment.saved_step
    if deployment.has_reported and not values and not is_saved and report.ended is None:
        return None
    return TrialReported(
        at_s=at_s,
        trial=deployment.trial,
        deployment=deployment.order_id,
        values=values,
        saved_step=report.saved_step,
        step_s=report.step_s,
        ended=report.ended,
        why=report.why,
        state_bytes=report.state_bytes,
        upload_s=report.upload_s,
        restore_s=report.restore_s,
        save_s=report.save_s,
        done_step=report.done_step,
    )
