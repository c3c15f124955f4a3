"""Alarms of a job's machines: those that ticks have recorded, and those that still wait in the bucket for a tick."""

from proteus_spot.infra.state.records import ObservationKind
from proteus_spot.infra.state.store import Store
from proteus_spot.infra.storage.alarms import Alarm, read_alarms
from proteus_spot.infra.storage.blobs import Blobs
from proteus_spot.infra.storage.leases import utc


def recorded_alarms(store: Store, job_id: str) -> list[Alarm]:
    """Return the alarms that ticks have recorded, oldest first."""
    return [Alarm(**seen.payload) for seen in store.jobs.observations(job_id, ObservationKind.ALARM)]


def waiting_line(blobs: Blobs, job_id: str) -> str:
    """Return a line on the alarms that no tick has recorded; empty if there is none.

    Raises
    ------
    BlobError
        If the bucket cannot be read.
    """
    alarms = read_alarms(blobs, job_id)
    if not alarms:
        return ""
    others = f" (and {len(alarms) - 1} more)" if len(alarms) > 1 else ""
    return f"no tick runs: {alarm_line(alarms[-1])}{others}"


def alarm_line(alarm: Alarm) -> str:
    """Return an alarm as people read it."""
    return f"machine {alarm.instance_id} at {utc(alarm.at_s)}: {alarm.reason}"
