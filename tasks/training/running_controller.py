"""The training as the controller of a job reports it: begun, followed, drained. It does not need its follower."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from proteus_spot.bidding.facts.records import Source
from proteus_spot.bidding.market.model import InstanceFact
from proteus_spot.bidding.market.spot_market import MarketError
from proteus_spot.infra.clock import SystemClock
from proteus_spot.infra.datasets.prepare import DataSummary
from proteus_spot.infra.errors import JobFailed
from proteus_spot.infra.json_values import finite
from proteus_spot.infra.nodes.controller_client import (
    NO_LOSSES,
    ControllerClient,
    ControllerUnreachable,
    OtherVersion,
    host_and_port,
    wait_rendezvous,
)
from proteus_spot.infra.state.records import IllegalTransition, JobState, ObservationKind
from proteus_spot.studies.job_spec import JobSpec
from proteus_spot.tasks.job_ends import is_active
from proteus_spot.tasks.job_records import ended_result, saved_result
from proteus_spot.tasks.market.facts.rebalances import record_rebalances
from proteus_spot.tasks.market.listed_machines import job_machines
from proteus_spot.tasks.task_runtime import current_runtime, runtime_task
from proteus_spot.tasks.training.job_config import job_config
from proteus_spot.tasks.training.preparation import job_code, prepare_data

logger = logging.getLogger(__name__)

#: Real seconds that a call to the controller may take.
_CALL_S = 5.0
#: Real seconds that a tick waits for a controller that imports a large module; the next tick asks again.
TICK_START_S = 60.0
_LOOK_S = 0.5
#: Real seconds between two status calls of the flow that follows the training.
_FOLLOW_S = 0.5
#: Real seconds to look for a controller before it is checked again that one is wanted.
_MEET_S = 5.0
#: Least real seconds between two questions to the market.
_ASK_AGAIN_S = 2.0


@runtime_task("meet the controller")
def await_controller(job_id: str) -> str | None:
    """Wait for the controller to start; record its address in the state database and return it.

    None if no training is to begin any more: the job was stopped, or the work was done meanwhile. How long a controller
    may take to start is the ticks' matter (`tasks.supervision.open_jobs`).

    Raises
    ------
    OtherVersion
        If the controller is of another version than this program.
    """
    runtime = current_runtime()
    while is_active(job_id) and saved_result(job_id) is None:
        try:
            address = meet_controller(job_id, _MEET_S)
        except ControllerUnreachable:
            continue
        runtime.store.jobs.set_controller(job_id, address)
        return address
    return None


@runtime_task("start training")
def start_training(
    spec: JobSpec, address: str, data: DataSummary, begun_at_s: float, wait_s: float | None = None
) -> dict[str, Any]:
    """Start the training, or attach to it; return its status.

    Parameters
    ----------
    begun_at_s : what is recorded from then on may be the record of this start; what is older is of another one.
    wait_s : real seconds to wait for a controller that imports a large module; None: as for a machine that joins.
    """
    runtime = current_runtime()
    config = job_config(
        spec.job_id, spec.training, data, spec.reliable.count, runtime.clock.scale, job_code(spec.job_id)
    )
    status = ControllerClient(address, _CALL_S).start(config.to_dict(), logger.warning, wait_s)
    _note_begun(spec.job_id, address, begun_at_s)
    note(spec.job_id, status)
    return status


def meet_controller(job_id: str, within_s: float) -> str:
    """Return the address of the job's controller once it answers there.

    It comes from the blob store, which the nodes may write: it is used only where the market says that it belongs to a
    machine of the job which is alive.

    Raises
    ------
    ControllerUnreachable
        If none of the job's machines answers within `within_s` real seconds.
    OtherVersion
        If the controller is of another version than this program.
    """
    return wait_rendezvous(current_runtime().settings.blob_url, job_id, within_s, _OwnMachines(job_id))


class _OwnMachines:
    """Says whether a rendezvous names a living machine of the job and its address."""

    def __init__(self, job_id: str) -> None:
        self._job_id = job_id
        self._facts: Sequence[InstanceFact] = ()
        self._asked_s: float | None = None

    def __call__(self, meeting: Mapping[str, Any]) -> bool:
        address = str(meeting.get("control", meeting.get("address", "")))
        host, _ = host_and_port(address)
        own_host = current_runtime().settings.node_host
        return any(
            fact.alive and fact.instance_id == meeting.get("name") and host in (fact.address, own_host)
            for fact in self._machines()
        )

    def _machines(self) -> Sequence[InstanceFact]:
        now_s = SystemClock().now_s()
        if self._asked_s is None or now_s - self._asked_s >= _ASK_AGAIN_S:
            self._asked_s = now_s
            try:
                self._facts = job_machines(self._job_id)
            except MarketError:
                self._facts = ()  # no address is trusted until the market answers
        return self._facts


def find_controller(job_id: str) -> tuple[str, dict[str, Any]] | None:
    """Return the address of the job's controller and its status; None if none answers.

    The address in the state database is tried first; a controller that has started again is found by the blob store.
    """
    runtime = current_runtime()
    address = runtime.store.jobs.job(job_id).controller_address
    since_clock = _last_clock(job_id) - 1  # with the loss of the last clock, which is shown until there is another
    status = look(address, since_clock) if address else None
    if status is None:
        try:
            address = meet_controller(job_id, _LOOK_S)
        except ControllerUnreachable:
            return None  # it is still starting; the next look or tick tries again
        except OtherVersion as error:
            logger.warning("%s", error)  # it trains on, and its machines are looked after
            return None
        runtime.store.jobs.set_controller(job_id, address)
        status = look(address, since_clock)
    return None if status is None or address is None else (address, status)


def keep_training(spec: JobSpec, begun_at_s: float, wait_s: float | None = None) -> dict[str, Any] | None:
    """Start the training on a controller that runs no job; return the controller's status, None if none answers.

    A controller that has started again (its machine restarts it under the same job) continues from its checkpoint. That
    a training runs is recorded if the process that started it could not.

    Parameters
    ----------
    begun_at_s : when the job was begun, or begun again.
    wait_s : as for `start_training`.
    """
    found = find_controller(spec.job_id)
    if found is None:
        return None
    address, status = found
    if status["job_id"] is None:
        return start_training(spec, address, prepare_data(spec), current_runtime().clock.now_s(), wait_s)
    _note_begun(spec.job_id, address, begun_at_s)
    return status


@runtime_task("follow training")
def follow(spec: JobSpec, show: Callable[[Mapping[str, Any] | None], None], begun_at_s: float = 0.0) -> dict[str, Any]:
    """Follow the training to its end; return its result.

    A controller that does not answer is waited for: its machine restarts it, under the same job, and it resumes from
    its checkpoint. Ticks buy machines of the reliable tier again, carry out stops, and close a job that cannot go on.

    Parameters
    ----------
    show : called after each look at the controller with its status, None without an answer; shows what is new.
    begun_at_s : when the job was begun, or begun again.

    Raises
    ------
    JobFailed
        If the controller reports a failure, or a tick has closed the job as failed.
    """
    runtime = current_runtime()
    clock = 0
    while not (job := runtime.store.jobs.job(spec.job_id)).state.terminal:
        # with the loss of the last clock, which is shown until there is another
        status = look(job.controller_address, clock - 1) if job.controller_address else None
        if status is None or status["job_id"] is None:
            result = saved_result(spec.job_id)
            if result is not None:
                return result
            if is_active(spec.job_id):
                keep_training(spec, begun_at_s)
        else:
            clock = status["clock"]
            note(spec.job_id, status)
            if status["state"] == "failed":
                raise JobFailed(f"job {spec.job_id}: {status['reason']}")
            if status["state"] in ("finished", "stopped"):
                return dict(saved_result(spec.job_id) or status["result"] or {"clocks": 0, "stopped": status["reason"]})
        show(status)
        runtime.clock.wait_until(runtime.clock.now_s() + _FOLLOW_S * runtime.clock.scale)
    if job.failure is not None:
        raise JobFailed(job.failure)
    return ended_result(spec.job_id) or {}


def _last_clock(job_id: str) -> int:
    seen = current_runtime().store.jobs.last_observation(job_id, ObservationKind.PROGRESS)
    return 0 if seen is None else int(seen.payload["clock"])


def look(address: str, since_clock: int) -> dict[str, Any] | None:
    """Return the controller's status, or None if it does not answer."""
    try:
        return ControllerClient(address, _CALL_S).status(since_clock)
    except ControllerUnreachable:
        return None


def note(job_id: str, status: dict[str, Any]) -> None:
    """Record a point of the job's progress."""
    store, now_s = current_runtime().store, current_runtime().clock.now_s()
    state = JobState(status["state"])
    if not state.terminal and store.jobs.job(job_id).state not in (state, JobState.STOPPING):
        try:
            store.jobs.move_job(job_id, state, now_s)
        except IllegalTransition:
            return  # a tick has found the saved model meanwhile and closed the job
    losses = status["losses"]
    loss = losses[-1][1] if losses else None
    before = None if losses else store.jobs.last_observation(job_id, ObservationKind.PROGRESS)
    if before is not None and before.payload["clock"] == status["clock"]:
        loss = before.payload.get("loss")  # the answers to a start and a stop leave out what was told before
    store.jobs.observe(
        job_id,
        now_s,
        ObservationKind.PROGRESS,
        {
            "state": status["state"],
            "clock": status["clock"],
            "loss": loss,
            "stage": status["stage"],
            "ready": sum(node["state"] in ("ready", "leaving") for node in status["nodes"]),
            "repeated": status["repeated_micro_tasks"],
            "seconds_per_clock": status.get("seconds_per_clock"),
            "passes": status.get("passes_done"),
            "driver_figures": finite(status.get("driver_figures") or {}),
        },
    )
    _note_change(job_id, now_s, ObservationKind.NODES, {node["name"]: node["state"] for node in status["nodes"]})
    shards = status.get("shards", ())
    roles = {"servers": [shard["node"] for shard in shards], "backups": [shard["backup"] for shard in shards]}
    _note_change(job_id, now_s, ObservationKind.SHARDS, roles if shards else {})
    _note_offer(job_id, now_s, status)
    _note_rebalances(job_id, status)


def _note_rebalances(job_id: str, status: dict[str, Any]) -> None:
    """Record the rebalance recommendations that machines of the job have reported."""
    found = {str(about["instance_id"]): int(about["at_s"]) for about in status.get("rebalances", ())}
    if found:
        record_rebalances(current_runtime().store.purchases.allocations(job_id), found, Source.METADATA)


def _note_offer(job_id: str, now_s: float, status: dict[str, Any]) -> None:
    """Record which nodes the job offers for release, once it has offered any."""
    nodes = sorted(node["name"] for node in status["nodes"] if node.get("offered"))
    offer = {"nodes": nodes, "machines": status.get("machines")}
    offers = nodes or offer["machines"] is not None
    if offers or current_runtime().store.jobs.last_observation(job_id, ObservationKind.OFFER) is not None:
        _note_change(job_id, now_s, ObservationKind.OFFER, offer)


def _note_begun(job_id: str, address: str, begun_at_s: float) -> None:
    """Record that the controller at `address` took the job, unless that was recorded at `begun_at_s` or later."""
    store = current_runtime().store
    last = store.jobs.last_observation(job_id, ObservationKind.TRAINING_BEGUN)
    if last is None or last.at_s < begun_at_s or last.payload.get("address") != address:
        now_s = current_runtime().clock.now_s()
        store.jobs.observe(job_id, now_s, ObservationKind.TRAINING_BEGUN, {"address": address})


def _note_change(job_id: str, now_s: float, kind: ObservationKind, payload: dict[str, Any]) -> None:
    """Record `payload` if it differs from the last record of its kind; an empty one is not recorded."""
    store = current_runtime().store
    before = store.jobs.last_observation(job_id, kind)
    if payload and (before is None or dict(before.payload) != payload):
        store.jobs.observe(job_id, now_s, kind, payload)


@runtime_task("drain")
def drain(job_id: str, nodes: Sequence[str], within_s: float) -> bool:
    """Have the controller move all work off `nodes` within `within_s` real seconds; return whether it did."""
    runtime = current_runtime()
    address = runtime.store.jobs.job(job_id).controller_address
    if address is None or not nodes:
        return False
    client = ControllerClient(address, _CALL_S)
    deadline_s = runtime.clock.now_s() + within_s * runtime.clock.scale
    try:
        client.drain(list(nodes), within_s)
        while not _drained(client.status(NO_LOSSES), nodes):
            if runtime.clock.now_s() >= deadline_s:
                return False
            runtime.clock.wait_until(runtime.clock.now_s() + 0.05 * runtime.clock.scale)
    except ControllerUnreachable:
        return False
    return True


def _drained(status: dict[str, Any], nodes: Sequence[str]) -> bool:
    busy = {node["name"] for node in status["nodes"] if node["state"] not in ("drained", "lost") and not node["gone"]}
    return busy.isdisjoint(nodes)
