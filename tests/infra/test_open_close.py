"""With statements: what is opened is closed, also where the opening fails half-way."""

import pytest

from proteus_spot.infra.open_close import ClosedAtEnd, OpenedAtStart


class Door(OpenedAtStart):
    """Tells what is done to it; `jams` is raised while it is half open."""

    def __init__(self, jams: BaseException | None = None) -> None:
        self.done: list[str] = []
        self._jams = jams

    def open(self) -> None:
        self.done.append("open")
        if self._jams is not None:
            raise self._jams

    def close(self) -> None:
        self.done.append("close")


def test_it_is_open_inside_and_closed_after() -> None:
    with Door() as door:
        assert door.done == ["open"]
    assert door.done == ["open", "close"]


@pytest.mark.parametrize("error", [RuntimeError("inside"), KeyboardInterrupt()])
def test_it_is_closed_where_the_inside_fails(error: BaseException) -> None:
    door = Door()
    with pytest.raises(type(error)), door:
        raise error
    assert door.done == ["open", "close"]


@pytest.mark.parametrize("error", [RuntimeError("jams"), KeyboardInterrupt()])
def test_what_was_opened_half_way_is_closed(error: BaseException) -> None:
    door = Door(error)
    with pytest.raises(type(error)), door:
        pytest.fail("it was not opened")
    assert door.done == ["open", "close"]


def test_what_is_open_from_the_beginning_is_only_closed() -> None:
    class Held(ClosedAtEnd):
        closed = False

        def close(self) -> None:
            self.closed = True

    with Held() as held:
        assert not held.closed
    assert held.closed
