"""Meeting a job's controller: its address comes from the blob store, which its nodes may write.

So the address is used only where the market says that it belongs to a machine of the job which is alive.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from proteus_spot.bidding.market.model import InstanceFact
from proteus_spot.bidding.market.spot_market import MarketError
from proteus_spot.infra.clock import SystemClock
from proteus_spot.infra.nodes.controller_client import host_and_port, wait_rendezvous
from proteus_spot.tasks.market.listed_machines import job_machines
from proteus_spot.tasks.task_runtime import current_runtime

#: Least real seconds between two questions to the market.
_ASK_AGAIN_S = 2.0


def meet_controller(job_id: str, within_s: float) -> str:
    """Return the address of the job's controller once it answers there.

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
