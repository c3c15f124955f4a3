"""What a node does about each answer of a server, whichever request it answers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from proteus_spot.psengine.protocol.answers import (
    JoinedRows,
    Moved,
    NotYet,
    Pushed,
    Rows,
    StaleEpoch,
    StaleRead,
    from_message,
    to_message,
)
from proteus_spot.psengine.protocol.instructions import ShardOwner
from proteus_spot.psengine.rpc.transport import Transfers, Unreachable
from proteus_spot.psengine.server.shard_server import ShardServer
from proteus_spot.psengine.worker.routing import ElsewhereError, Routes, ServerCalls, SupersededError

OLD, NEW = ShardOwner(0, "a", "tcp://a", 1), ShardOwner(0, "b", "tcp://b", 2)


def asked(answers: dict[str, list[Any]], follow: bool = True, times: int = 1) -> list[str]:
    """Return the addresses that a request for a shard is sent to; a server gives its answers in turn."""
    sent: list[str] = []
    routes = Routes()
    routes.use(1, (OLD,), 1)
    routes.begin(1)

    async def ask(address: str, epochs: dict[int, int]) -> Any:
        sent.append(address)
        answer = answers[address].pop(0)
        if isinstance(answer, Exception):
            routes.use(2, (NEW,), 1)
            raise answer
        return answer

    calls = ServerCalls("tcp://here", Transfers(None), routes, ShardServer())  # type: ignore[arg-type]
    asyncio.run(calls.at_owners([0], ask, follow, lambda tried: tried < times))
    return sent


def test_a_request_follows_its_shard_and_is_repeated_while_the_caller_wants() -> None:
    moved, gone = Moved((NEW,), "moved"), Unreachable("tcp://a", "op", OSError("gone"))
    for first in (moved, gone):
        assert asked({"tcp://a": [first], "tcp://b": [Pushed()]}) == ["tcp://a", "tcp://b"]
        with pytest.raises((ElsewhereError, Unreachable)):
            asked({"tcp://a": [first]}, follow=False)
    assert asked({"tcp://a": [NotYet("later"), NotYet("later"), Rows({})]}, times=3) == ["tcp://a"] * 3


@pytest.mark.parametrize(
    "answer", [StaleEpoch("epoch 1"), StaleRead("clock 1"), NotYet("not yet"), Moved((OLD,), "back")]
)
def test_a_batch_is_given_up_with_the_line_of_the_server(answer: Any) -> None:
    with pytest.raises(SupersededError, match=answer.error):
        asked({"tcp://a": [answer]})


@pytest.mark.parametrize(
    "answer", [Pushed(), NotYet("x"), Moved((NEW,), "y"), Rows({}, 3), JoinedRows([0, 1], {}, {}, 2)]
)
def test_an_answer_arrives_as_its_class(answer: Any) -> None:
    assert from_message(to_message(answer)) == answer
    assert from_message({"instruction": "ok"}) == {"instruction": "ok"}
