"""`EventQueue` on SQS: the queue that a rule of EventBridge fills with the events of EC2's machines."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from proteus_spot.bidding.market.machine_events import MachineEvent
from proteus_spot.infra.ec2.ec2_spot_market import raise_market_error
from proteus_spot.infra.ec2.event_messages import read_messages

#: What SQS takes at most in one call.
_BATCH = 10
#: Calls for messages at most, so that a flood of others' events holds up nothing.
_CALLS = 50


class SqsEvents:
    """The queue at `url`.

    Parameters
    ----------
    connect : returns boto3's client of SQS; called at the first use.
    wait_s : seconds that a call waits for a message; with 0, SQS asks some of its servers only.
    """

    def __init__(self, url: str, connect: Callable[[], Any], wait_s: int = 1) -> None:
        self._url, self._connect, self._wait_s = url, connect, wait_s
        self._made: Any = None

    @property
    def _client(self) -> Any:
        if self._made is None:
            self._made = self._connect()
        return self._made

    def receive(self) -> list[MachineEvent]:
        """Return the events that are there now; see `EventQueue.receive`."""
        events, bad = read_messages(self._messages())
        self._remove(bad)
        return events

    def remove(self, events: Sequence[MachineEvent]) -> None:
        """Remove events that were received; see `EventQueue.remove`."""
        self._remove([event.receipt for event in events])

    def _messages(self) -> Iterator[tuple[str, str]]:
        for _ in range(_CALLS):
            try:
                answer = self._client.receive_message(
                    QueueUrl=self._url, MaxNumberOfMessages=_BATCH, WaitTimeSeconds=self._wait_s
                )
            except (ClientError, BotoCoreError) as error:
                raise_market_error(error)
            messages = answer.get("Messages", ())
            if not messages:
                return
            for message in messages:
                yield message["ReceiptHandle"], message["Body"]

    def _remove(self, receipts: Sequence[str]) -> None:
        for first in range(0, len(receipts), _BATCH):
            batch = enumerate(receipts[first : first + _BATCH])
            entries = [{"Id": str(number), "ReceiptHandle": receipt} for number, receipt in batch]
            try:
                self._client.delete_message_batch(QueueUrl=self._url, Entries=entries)
            except (ClientError, BotoCoreError) as error:
                raise_market_error(error)
