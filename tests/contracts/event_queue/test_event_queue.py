"""What both queues of machine events do: SQS through boto3 on moto's server, and that of the simulated market."""

import json
import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import boto3
import pytest
from moto.server import ThreadedMotoServer

from proteus_spot.bidding.market.machine_events import EventKind, EventQueue
from proteus_spot.infra.ec2.ec2_spot_market import Ec2SpotMarket
from proteus_spot.infra.ec2.event_messages import REBALANCE, RESERVATION_WARNINGS, SPOT_WARNING
from proteus_spot.infra.ec2.sqs_events import SqsEvents
from proteus_spot.infra.settings import Settings
from proteus_spot.infra.simulated_ec2.event_queue import SimEvents, event_message
from proteus_spot.infra.simulated_ec2.market import SimSpotMarket
from tests.support.market_servers import T0, TRACES, ManualClock, credentials, sold

Send = Callable[[str], object]
NAME, OTHER = "i-0123456789abcdef0", "i-0fedcba9876543210"


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    yield "http://{}:{}".format(*server.get_host_and_port())
    server.stop()


@pytest.fixture(params=["sqs", "simulated"])
def queue(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[EventQueue, Send]]:
    """A queue and what puts a message into it."""
    if request.param == "simulated":
        simulated = SimEvents(SimSpotMarket(TRACES, sold, ManualClock(T0).now_s))
        yield simulated, simulated.send
        return
    credentials(monkeypatch)
    settings = Settings(ec2_endpoint_url=request.getfixturevalue("moto"))
    client = boto3.client("sqs", settings.region, endpoint_url=settings.ec2_endpoint_url)
    url = client.create_queue(QueueName="machine-events", Attributes={"VisibilityTimeout": "5"})["QueueUrl"]
    yield (
        SqsEvents(url, lambda: Ec2SpotMarket(settings).connect("sqs"), wait_s=0),
        lambda body: client.send_message(QueueUrl=url, MessageBody=body),
    )
    client.delete_queue(QueueUrl=url)


def received(queue: EventQueue) -> list[tuple[EventKind, str, int]]:
    return sorted((event.kind, event.instance_id, event.at_s - T0) for event in queue.receive())


def at(second: int) -> str:
    return f"{datetime.fromtimestamp(T0 + second, UTC):%Y-%m-%dT%H:%M:%SZ}"


def test_a_spot_warning_is_of_two_minutes_and_a_recommendation_of_now(queue: tuple[EventQueue, Send]) -> None:
    events, send = queue
    send(event_message(SPOT_WARNING, NAME, T0 + 10, **{"instance-action": "terminate"}))
    send(event_message(REBALANCE, OTHER, T0 + 20))
    assert received(events) == [(EventKind.INTERRUPTION, NAME, 130), (EventKind.REBALANCE, OTHER, 20)]


@pytest.mark.parametrize("kind", RESERVATION_WARNINGS)
def test_the_warning_of_a_reservation_says_when_the_machine_ends(queue: tuple[EventQueue, Send], kind: str) -> None:
    """The event as EC2's guide shows it."""
    events, send = queue
    detail = {"instance-action": "terminate", "instance-termination-time": at(95), "azId": "use1-az1"}
    send(event_message(kind, NAME, T0, **detail))
    assert received(events) == [(EventKind.INTERRUPTION, NAME, 95)]


def test_what_is_not_removed_comes_again_and_what_is_does_not(queue: tuple[EventQueue, Send]) -> None:
    events, send = queue
    send(event_message(REBALANCE, NAME, T0))
    send(event_message(REBALANCE, OTHER, T0))
    first = {event.instance_id: event for event in events.receive()}
    events.remove([first[NAME]])
    events.remove([])
    again: list[tuple[EventKind, str, int]] = []
    while not again:  # until SQS shows it again, seconds later
        again = received(events)
    assert again == [(EventKind.REBALANCE, OTHER, 0)]


def test_more_messages_than_a_call_brings_come_at_once_and_can_be_removed_at_once(
    queue: tuple[EventQueue, Send],
) -> None:
    events, send = queue
    names = [f"i-{number:017x}" for number in range(23)]
    for name in names:
        send(event_message(REBALANCE, name, T0))
    found = events.receive()
    assert sorted(event.instance_id for event in found) == names
    events.remove(found)
    assert events.receive() == []


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("no JSON", "invalid JSON"),
        ("[]", "must be a mapping"),
        (json.dumps({"detail-type": SPOT_WARNING, "time": at(0)}), "detail: is missing"),
        (event_message(SPOT_WARNING, "r-1", T0), "detail.instance-id: must match"),
        (event_message(SPOT_WARNING, NAME, T0, **{"instance-termination-time": "soon"}), "instance-termination-time"),
        (event_message("EC2 Instance State-change Notification", NAME, T0), "State-change Notification' tells of none"),
    ],
)
def test_what_is_no_event_of_a_machine_is_logged_and_removed(
    queue: tuple[EventQueue, Send], body: str, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    events, send = queue
    send(body)
    with caplog.at_level(logging.WARNING):
        assert events.receive() == []
        assert events.receive() == []
    (line,) = [record.getMessage() for record in caplog.records if record.name.endswith("event_messages")]
    assert line.startswith("a message of the queue of machine events is removed: ")
    assert told in line
