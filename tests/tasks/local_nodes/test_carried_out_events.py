"""A script of joins, notices, kills and drains, carried out on nodes that are slow to join."""

from __future__ import annotations

from typing import Any

from proteus_spot.tasks.local_nodes.event_script import NodeEventScript, ScriptedEvent


class Nodes:
    """Processes that are started and killed, and never there by themselves."""

    def __init__(self) -> None:
        self.running: set[str] = set()
        self.done: list[str] = []

    def start(self, name: str, tier: str, threads: int) -> None:
        assert (tier, threads) == ("transient", 1)
        self.running.add(name)
        self.done.append(f"start {name}")

    def freeze(self, name: str) -> None:
        self.done.append(f"freeze {name}")

    def kill(self, name: str) -> None:
        self.running.discard(name)
        self.done.append(f"kill {name}")

    def let_go(self, name: str) -> None:
        self.done.append(f"let go {name}")


class Client:
    """Knows the nodes that have joined, and nobody else."""

    def __init__(self) -> None:
        self.there: list[str] = []
        self.done: list[str] = []
        self.held: int | None = None

    def status(self, clock: int) -> dict[str, Any]:
        nodes = [{"name": name, "gone": False, "state": "ready"} for name in self.there]
        return {"nodes": nodes, "clock": clock, "elapsed_s": float(clock)}

    def notice(self, node: str, seconds: float) -> None:
        assert node in self.there, "told to nobody"
        self.done.append(f"notice {node} {seconds:g}")

    def drain(self, names: list[str], seconds: float) -> None:
        assert set(names) <= set(self.there), "told to nobody"
        self.done.append(f"drain {names[0]} {seconds:g}")

    def hold(self, clock: int | None) -> None:
        self.held = clock


def test_a_notice_waits_for_its_node_to_join_and_holds_the_job_there() -> None:
    events = [
        ScriptedEvent(4, None, "join", "t9"),
        ScriptedEvent(5, None, "notice", "t9", 3.0),
        ScriptedEvent(6, None, "kill", "t1"),
    ]
    script, nodes, client = NodeEventScript(events), Nodes(), Client()
    client.there = ["t1"]

    def at(clock: int, now_s: float) -> list[str]:
        return script.carry_out(nodes, client, client.status(clock), now_s, 1)  # type: ignore[arg-type]

    assert at(4, 10.0) == ["clock 4: join t9"]
    assert client.held == 5
    assert at(5, 20.0) == []
    assert at(5, 30.0) == []
    assert (client.held, client.done, len(script.records)) == (5, [], 1), "nothing is said to have happened"
    client.there.append("t9")
    assert at(5, 40.0) == ["clock 5: notice t9"]
    assert (client.held, client.done) == (6, ["notice t9 3"])
    assert at(5, 42.9) == []
    assert "kill t9" not in nodes.done
    at(5, 43.0)
    assert nodes.done[-1] == "kill t9", "its time runs from when it was told"


def test_a_kill_waits_with_a_notice_of_its_clock_so_that_it_strikes_into_the_next_one() -> None:
    events = [
        ScriptedEvent(4, None, "join", "t9"),
        ScriptedEvent(5, None, "kill", "t1"),
        ScriptedEvent(5, None, "notice", "t9", 3.0),
    ]
    script, nodes, client = NodeEventScript(events), Nodes(), Client()
    client.there = ["t1"]
    nodes.running = {"t1"}

    def at(clock: int) -> list[str]:
        return script.carry_out(nodes, client, client.status(clock), 1.0, 1)  # type: ignore[arg-type]

    assert at(4) == ["clock 4: join t9"]
    assert at(5) == []
    client.there.append("t9")
    assert at(5) == ["clock 5: kill t1", "clock 5: notice t9"]
    assert (client.held, nodes.done) == (None, ["start t9", "freeze t1", "kill t1"])


def test_who_joins_and_is_drained_in_one_clock_joins_first() -> None:
    script = NodeEventScript([ScriptedEvent(4, None, "join", "t9"), ScriptedEvent(4, None, "drain", "t9", 3.0)])
    nodes, client = Nodes(), Client()
    assert script.carry_out(nodes, client, client.status(4), 1.0, 1) == ["clock 4: join t9"]  # type: ignore[arg-type]
    client.there.append("t9")
    assert script.carry_out(nodes, client, client.status(4), 2.0, 1) == ["clock 4: drain t9"]  # type: ignore[arg-type]
