"""Values between two processes: arrays are in memory of their own."""

from __future__ import annotations

import multiprocessing
import threading
from pathlib import Path
from typing import Any

import numpy as np

from proteus_spot.nets.channel import Channel


def blocks() -> int:
    return Path("/proc/self/maps").read_text().count("memfd:proteus-net")


def test_arrays_hold_until_the_last_of_their_message_goes() -> None:
    ours, theirs = (Channel(end) for end in multiprocessing.Pipe())
    sent: list[Any] = [np.arange(50_000.0), np.ones(3, np.float32), np.zeros((0, 2)), "text"]
    messages = [sent, "no arrays", [2 * sent[0]]]

    def send() -> None:
        for message in messages:
            theirs.send(message)

    before = blocks()
    thread = threading.Thread(target=send)
    thread.start()
    found = [ours.receive() for _ in messages]
    thread.join()
    for array, expected in zip(found[0][:3], sent, strict=False):
        np.testing.assert_array_equal(array, expected)
    assert (found[0][3], found[1]) == ("text", "no arrays")
    np.testing.assert_array_equal(found[2][0], 2 * sent[0])
    found[0][0] += 1
    assert blocks() - before == 2, "the sender has no mapping"
    del array, found
    assert blocks() == before
    ours.close()
    theirs.close()
