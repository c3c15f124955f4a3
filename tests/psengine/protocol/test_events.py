"""The controller's events: each is a dataclass that carries the time, and each has its case."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass

from proteus_spot.psengine.controller.controller import Controller
from proteus_spot.psengine.protocol.events import Event, NodeEvent


def kinds(base: type[Event] = Event) -> Iterator[type[Event]]:
    """Give every event that is sent: the classes below `base` that none inherits from."""
    for kind in base.__subclasses__():
        yield from list(kinds(kind)) or [kind]


def test_every_event_is_frozen_and_carries_the_time() -> None:
    for kind in kinds():
        assert is_dataclass(kind), kind
        assert kind.__dataclass_params__.frozen, kind  # type: ignore[attr-defined]
        assert "now_s" in {field.name for field in fields(kind)}, kind


def test_the_controller_has_a_case_for_every_event() -> None:
    assert set(Controller()._handlers) == set(kinds())


def test_what_a_node_reports_names_the_node_first() -> None:
    assert list(kinds(NodeEvent))
    for kind in kinds(NodeEvent):
        assert [field.name for field in fields(kind)][:2] == ["node", "address"]
