"""The orders of a sweep carried out: a machine for a trial is bought, a trial is asked to pause, a machine ends.

A purchase is sent as a job's are (`tasks.market.purchases.sending`): one frozen request by order, one client token.
What the machine reads, the setting of its trial and the orders of its deployment, is in the blob store before it is
bought.
"""

from proteus_spot.bidding.market.model import LaunchRequest
from proteus_spot.bidding.tuning.sweep_orders import Deploy, PauseTrial
from proteus_spot.infra.state.records import Intent
from proteus_spot.infra.storage.trial_paths import TrialPaths
from proteus_spot.infra.trials.trial_documents import TrialOrders, TrialSetting
from proteus_spot.tasks.job_ends import is_active
from proteus_spot.tasks.market.engine_journal import SweepJournal
from proteus_spot.tasks.market.purchases.requests import trial_request
from proteus_spot.tasks.market.purchases.sending import PurchaseOutcome, Result, send
from proteus_spot.tasks.sweeps.sweep_spec import SweepSpec
from proteus_spot.tasks.task_runtime import current_runtime, runtime_task


@runtime_task("deploy trial", market=True)
def deploy(spec: SweepSpec, journal: SweepJournal, order: Deploy) -> PurchaseOutcome:
    """Buy a machine for a trial, and record the outcome; an order that was answered meanwhile is not carried out."""
    if order.order_id not in journal.refresh().sweep.open_orders:
        return PurchaseOutcome(Result.GRANTED, "answered meanwhile")
    if not is_active(spec.job_id):
        return PurchaseOutcome(Result.OPEN, "the sweep is to stop")
    runtime, paths = current_runtime(), TrialPaths(spec.job_id, order.trial)
    setting = setting_of(spec, journal, order.trial)
    if not runtime.blobs.exists(paths.setting):
        runtime.blobs.write_json(paths.setting, setting.to_json())
    _write_orders(spec.job_id, order.trial, order.order_id, TrialOrders(order.until_step))

    def request(intent: Intent) -> LaunchRequest:
        return trial_request(
            spec.job_id,
            order.trial,
            order.order_id,
            order.market,
            token=intent.token or "",
            bid_micros=order.bid_micros,
        )

    return send(journal, order.order_id, request)


@runtime_task("pause trial")
def pause(journal: SweepJournal, order: PauseTrial) -> None:
    """Ask a deployment to save its trial's state and to end; its machine looks for that every few seconds."""
    until_step = journal.cached().sweep.trials[order.trial].until_step
    _write_orders(journal.job_id, order.trial, order.deployment, TrialOrders(until_step, pause=True, why=order.why))


def setting_of(spec: SweepSpec, journal: SweepJournal, number: int) -> TrialSetting:
    """Return what a trial trains, the same for all its deployments."""
    return TrialSetting(
        params=dict(journal.cached().sweep.trials[number].params),
        seed=spec.seed + number,
        max_trial_steps=spec.max_trial_steps,
        trial=spec.trial,
        metric=spec.metric.name,
        direction=spec.metric.direction,
        data=data_name(spec.data) if spec.data else None,
        checkpoint_minutes=spec.checkpoint_minutes,
    )


def data_name(data: str) -> str:
    """Return the name of a data file on the machines: the last part of its path or URL."""
    return data.split("?")[0].rstrip("/").rpartition("/")[2] or "data"


def _write_orders(sweep_id: str, trial: int, deployment: str, orders: TrialOrders) -> None:
    current_runtime().blobs.write_json(TrialPaths(sweep_id, trial).orders(deployment), orders.to_json())
