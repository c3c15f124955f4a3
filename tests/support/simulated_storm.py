"""Seeded faults of the nodes of a cluster in memory: joins, notices, kills and cuts, one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tests.support.lossy_network import machine
from tests.support.simulated_cluster import CONTROLLER, WiredCluster
from tests.support.simulated_jobs import started

#: nodes that are there at a time, at most; seconds between two blows, at most
MOST, APART_S = 4, 4.0


class WiredStorm:
    """Blows on one cluster; `told` is what happened, for people."""

    def __init__(self, cluster: WiredCluster) -> None:
        self.cluster, self.dice = cluster, cluster.dice
        self.reliable, self.names = {"r1", "r2"}, 0
        self.told: list[str] = []

    async def run(self, blows: int) -> None:
        """Let so many things happen; at the end nobody is cut off, and somebody can work."""
        for _ in range(blows):
            await self.pause()
            loop = asyncio.get_running_loop()
            self.told.append(f"{loop.time():.2f} s, clock {self.clock}: {await self.dice.choice(self.possible())()}")

    async def pause(self) -> None:
        """Let nothing happen for a while: very briefly, while instructions are under way, or for some clocks."""
        pause = self.dice.choice([0.005, 0.05, APART_S])
        clock, clocks = self.clock, self.dice.choice([0, 0, 1, 3])
        await asyncio.sleep(self.dice.uniform(0.0, pause))
        controller, end_s = self.cluster.shell.controller, asyncio.get_running_loop().time() + 60.0
        while self.clock < clock + clocks and controller.job.state == "running":
            await asyncio.sleep(0.2)
            if asyncio.get_running_loop().time() > end_s:
                return

    @property
    def clock(self) -> int:
        tasks = self.cluster.shell.controller.job.tasks
        return 0 if tasks is None else tasks.common

    def possible(self) -> list[Callable[[], Awaitable[str]]]:
        blows: list[Callable[[], Awaitable[str]]] = []
        if len(self.transient()) < MOST:
            blows += [self.join, self.join]
        if self.transient():
            blows += [self.notice, self.notice, self.kill]
        if len(self.reliable) > 1 and self.dice.random() < 0.3:
            blows += [self.lose_a_reliable_node]
        if len(self.cluster.nodes) > 1:
            blows += [self.cut, self.cut_off]
        return blows

    def transient(self) -> list[str]:
        return sorted(set(self.cluster.nodes) - self.reliable)

    async def join(self) -> str:
        self.names += 1
        self.cluster.start(f"t{self.names}")
        return f"t{self.names} joins"

    async def kill(self) -> str:
        name = self.dice.choice(self.transient())
        await self.cluster.kill(name)
        return f"{name} is killed"

    async def lose_a_reliable_node(self) -> str:
        name = self.dice.choice(sorted(self.reliable))
        self.reliable.discard(name)
        await self.cluster.kill(name)
        self.names += 1
        self.reliable.add(f"r{self.names + 2}")
        self.cluster.start(f"r{self.names + 2}", "reliable")
        return f"{name} is killed, a reliable one, and r{self.names + 2} joins"

    async def notice(self) -> str:
        """Tell a node that it is taken soon, and take it then."""
        name, seconds = self.dice.choice(self.transient()), self.dice.choice([0.5, 5.0, 30.0])
        await self.cluster.shell.notice(name, seconds)
        node = self.cluster.nodes[name]
        self.cluster.after(seconds, lambda: self.take(name, node))
        return f"{name} is told to go within {seconds} s"

    async def take(self, name: str, node: object) -> None:
        if self.cluster.nodes.get(name) is node:
            await self.cluster.kill(name)

    async def cut(self) -> str:
        """Nothing passes between two nodes for a while, one way or both ways."""
        one, other = self.dice.sample(sorted(self.cluster.nodes), 2)
        return self.between(f"sim://{one}/1", f"sim://{other}/1")

    async def cut_off(self) -> str:
        """Nothing passes between a node and the controller for a while, one way or both ways."""
        name = self.dice.choice(sorted(self.cluster.nodes))
        return self.between(f"sim://{name}/1", CONTROLLER)

    def between(self, one: str, other: str) -> str:
        one, other = machine(one), machine(other)
        ways = self.dice.choice([{(one, other)}, {(other, one)}, {(one, other), (other, one)}])
        seconds = self.dice.choice([1.0, 6.0, 25.0, 90.0])
        self.cluster.wires.cuts |= ways
        self.cluster.later(seconds, self.cluster.wires.cuts.difference_update, ways)
        return f"{' and '.join('->'.join(way) for way in sorted(ways))} cut for {seconds} s"


async def storm(cluster: WiredCluster, blows: int) -> None:
    """Let a storm blow over a job with two transient nodes, t1 and t2, once it trains."""
    wired = WiredStorm(cluster)
    wired.names = 2
    await started(cluster)
    await wired.run(blows)
