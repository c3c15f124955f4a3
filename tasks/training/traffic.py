"""Bytes that a job's machines exchange, by pair of zones: noted at ticks, and what a vCPU-hour of them costs.

EC2 charges for bytes between zones, and the market's bill does not show them: they are an estimate beside the ledger.
"""

from proteus_spot.bidding.economics.job_model import size_in
from proteus_spot.bidding.market.model import HOUR_S, Market
from proteus_spot.infra.nodes.controller_client import ControllerClient, ControllerUnreachable
from proteus_spot.infra.state.records import ObservationKind
from proteus_spot.studies.job_spec import JobSpec
from proteus_spot.tasks.market.costs import GB, by_zones
from proteus_spot.tasks.market.job_opening import type_on_sale
from proteus_spot.tasks.task_runtime import current_runtime
from proteus_spot.tasks.training.work_left import USUAL, Speeds, vcpu_seconds

#: Real seconds that the controller has to answer.
_CALL_S = 5.0


def crossing_usd_per_vcpu_h(spec: JobSpec, speeds: Speeds = USUAL) -> float:
    """Return what the bytes cost that a vCPU-hour of work exchanges with machines in another zone; note the bytes.

    It is 0, without a request, if all markets are in the zone of the reliable tier, or bytes cost nothing. Before
    a clock is measured each clock, one a second, is taken to read the model and to send as much back.
    """
    runtime = current_runtime()
    usd_per_gb = runtime.settings.cross_zone_usd_per_gb
    if not usd_per_gb or _zones(spec) <= {spec.reliable.zone}:
        return 0.0
    _note(spec.job_id)
    last = runtime.store.jobs.last_observation(spec.job_id, ObservationKind.TRAFFIC)
    if last is None:
        return 0.0
    worked_s = vcpu_seconds(spec, last.at_s, speeds)
    exchanged = sum(last.payload["bytes_by_zones"].values())
    if exchanged and worked_s:
        return float(exchanged / worked_s * HOUR_S / GB * usd_per_gb)
    kinds = [type_on_sale(Market.parse(text), runtime.clock.now_s()) for text in spec.transient.markets]
    vcpus = min((size_in(spec.transient.unit, kind) for kind in kinds if kind is not None), default=1)
    return float(2 * last.payload["model_bytes"] * HOUR_S / vcpus / GB * usd_per_gb)


def _zones(spec: JobSpec) -> set[str]:
    return {Market.parse(text).zone for text in spec.transient.markets}


def _note(job_id: str) -> None:
    """Record what the controller has counted, if it answers."""
    runtime = current_runtime()
    store = runtime.store
    address = store.jobs.job(job_id).controller_address
    if address is None or store.jobs.last_observation(job_id, ObservationKind.TRAINING_BEGUN) is None:
        return
    try:
        counted = ControllerClient(address, _CALL_S).traffic()
    except ControllerUnreachable:
        return
    payload = {
        "bytes_by_zones": by_zones(counted["links"], store.purchases.allocations(job_id)),
        "model_bytes": counted["model_bytes"],
    }
    last = store.jobs.last_observation(job_id, ObservationKind.TRAFFIC)
    if last is None or dict(last.payload) != payload:
        store.jobs.observe(job_id, runtime.clock.now_s(), ObservationKind.TRAFFIC, payload)
