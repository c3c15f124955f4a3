"""The messages of EventBridge about single machines.

*Source*: EC2 user guide, "Spot Instance interruption notices", "EC2 instance rebalance recommendations" and "Monitor
interruptible Capacity Reservations with EventBridge and CloudTrail". An older edition of the last calls its warning
``EC2 Interruptible Capacity Reservation Instance Interruption Warning``; that name is read, too.
"""

import logging
from collections.abc import Iterable

from pydantic import AwareDatetime, BaseModel, Field, ValidationError

from proteus_spot.bidding.market.machine_events import EventKind, MachineEvent
from proteus_spot.infra.validation import first_fault

SPOT_WARNING = "EC2 Spot Instance Interruption Warning"
REBALANCE = "EC2 Instance Rebalance Recommendation"
RESERVATION_WARNINGS = (
    "EC2 Capacity Reservation Instance Interruption Warning",
    "EC2 Interruptible Capacity Reservation Instance Interruption Warning",
)
#: The warning of a spot machine does not say when the machine is taken: so long after its time.
_NOTICE_S = 120
_log = logging.getLogger(__name__)


class _Detail(BaseModel):
    instance_id: str = Field(alias="instance-id", pattern=r"^i-[0-9a-f]+$")
    termination_time: AwareDatetime | None = Field(None, alias="instance-termination-time")


class _Message(BaseModel):
    detail_type: str = Field(alias="detail-type")
    time: AwareDatetime
    detail: _Detail


def read_messages(messages: Iterable[tuple[str, str]]) -> tuple[list[MachineEvent], list[str]]:
    """Return the events of messages, and the receipts of those that are none, which are logged.

    Parameters
    ----------
    messages : (receipt, body) of each.
    """
    events, bad = [], []
    for receipt, body in messages:
        try:
            message = _Message.model_validate_json(body)
        except ValidationError as error:
            _log.warning("a message of the queue of machine events is removed: %s", first_fault(error, str))
            bad.append(receipt)
            continue
        detail, at_s = message.detail, int(message.time.timestamp())
        if message.detail_type == REBALANCE:
            events.append(MachineEvent(EventKind.REBALANCE, detail.instance_id, at_s, receipt))
        elif message.detail_type == SPOT_WARNING or message.detail_type in RESERVATION_WARNINGS:
            ends = detail.termination_time
            takes_at_s = at_s + _NOTICE_S if ends is None else int(ends.timestamp())
            events.append(MachineEvent(EventKind.INTERRUPTION, detail.instance_id, takes_at_s, receipt))
        else:
            _log.warning("a message of the queue of machine events is removed: %r tells of none", message.detail_type)
            bad.append(receipt)
    return events, bad
