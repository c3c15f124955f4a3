"""Each message of a sender counts once."""

from psengine.server.deduplication import SequenceWindow


def test_the_window_knows_each_number_once() -> None:
    window = SequenceWindow()
    for number in (2, 1, 4):
        assert not window.seen(number)
        window.note(number)
        assert window.seen(number)
    assert not window.seen(3)
