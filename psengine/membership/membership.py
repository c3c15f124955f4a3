"""Who is there, and who owns which partition: the half of the controller that knows nodes. Pure.

It knows neither micro-tasks nor how the job stands: what runs where, it is told.

| a node is | that means |
|---|---|
| joining | it loads the partitions that it was asked for |
| ready | it may own partitions |
| unfit | it cannot load (its disk is full, its network is away): it owns nothing, and may still serve shards, unless its code is another |
| leaving | it was told to go and works on, for there is time (`notices`): it owns what it owned, and serves what it served until its last clock is common |
| draining | it was told to go, finishes what it runs, and then hands over what it serves |
| drained | nothing runs on it and it serves nothing: it can go |
| lost | its process went before that |

Invariants: owners are ready or leaving nodes; a name stands for one process at a time, told by its address.

Source: Proteus (EuroSys 2017), 3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from psengine.config import JobConfig, Tier
from psengine.membership.node_record import NodeRecord
from psengine.membership.placement import Owners, Placement, balance, quotas, switch, take_over, tidied
from psengine.protocol.instructions import Instruction, LoadPartitions


class Membership:
    """Nodes and placement of one job."""

    def __init__(self) -> None:
        #: {name: node}, in the order in which they joined
        self.nodes: dict[str, NodeRecord] = {}
        #: who owns what now; nobody does before the training has begun
        self.placement = Placement.empty(0)
        #: who should own what once everybody has loaded what he lacks
        self.target: Owners = ()
        #: eviction notices, the first one of each process, as the status tells them
        self.notices: list[dict[str, object]] = []
        #: the tier whose nodes are to work no more: in stage 3 the reliable one
        self.resting: Tier | None = None
        self._config: JobConfig | None = None

    def adopt(self, config: JobConfig) -> None:
        """Begin with a job whose partitions nobody owns."""
        self._config = config
        self.placement = Placement.empty(config.n_partitions)
        self.target = self.placement.owner

    # -- views ----------------------------------------------------------------------------------------------------

    def in_state(self, *states: str) -> list[NodeRecord]:
        """Return the nodes in one of `states`, in the order in which they joined."""
        return [node for node in self.nodes.values() if node.state in states]

    def process(self, name: str, address: str) -> NodeRecord | None:
        """Return the node `name` if `address` is that of its present process; reports of a former one are late."""
        node = self.nodes.get(name)
        return node if node is not None and node.address == address else None

    def at(self, address: str) -> NodeRecord | None:
        """Return the node whose process at `address` is there."""
        return next((node for node in self.nodes.values() if node.address == address and not node.gone), None)

    def stays(self, tier: Tier) -> int:
        """Return how many nodes of a tier are there that nobody has told to go."""
        return sum(node.tier == tier for node in self.in_state("joining", "ready", "unfit"))

    @property
    def set_aside(self) -> str:
        """The unfit nodes and what each said, for people; empty where there are none."""
        return "; ".join(f"{node.name} is unfit: {node.error}" for node in self.in_state("unfit"))

    @property
    def cannot_load(self) -> bool:
        """Whether nobody who is there can load, and no reliable node is awaited who might."""
        here = [node for node in self.nodes.values() if not node.gone]
        wanted = 0 if self._config is None else self._config.n_reliable
        complete = sum(node.tier == "reliable" for node in here) >= wanted
        return complete and all(node.state == "unfit" for node in here)

    @property
    def cannot_serve(self) -> bool:
        """Whether as many reliable nodes are there as the job wants, and fewer of them can serve."""
        tier = [node for node in self.nodes.values() if node.tier == "reliable" and not node.gone]
        return self._config is not None and len(tier) >= self._config.n_reliable > sum(map(self._serves, tier))

    def servers(self, patient: bool, few: bool = False) -> list[NodeRecord]:
        """Return the nodes to open the shards on; none while more of them, or somebody to work, are waited for.

        Parameters
        ----------
        patient : bool
            Whether nodes that still load are waited for.
        few : bool
            Whether fewer than the job's reliable nodes will do, as long as there is one.
        """
        servers = self.able_to_serve
        wanted = 1 if few or self._config is None else self._config.n_reliable
        if len(servers) < wanted or (patient and self.in_state("joining")) or not self.in_state("ready"):
            return []  # the unfit could serve, but not work
        return servers

    @property
    def able_to_serve(self) -> list[NodeRecord]:
        """The nodes that shards may be opened on, or moved to."""
        return [node for node in self.in_state("ready", "unfit") if self._serves(node)]

    def _serves(self, node: NodeRecord) -> bool:
        """Whether shards can be opened on a node: for want of a disk it may be unfit, for want of the code not."""
        return node.tier == "reliable" and self._config is not None and not self._config.code_misfit(node.code_sha256)

    # -- nodes come and go ----------------------------------------------------------------------------------------

    def join(self, name: str, address: str, tier: Tier, threads: int, code_sha256: str = "") -> NodeRecord:
        """Note a process; it takes the place of one of the same name, at the end of the line."""
        self.nodes.pop(name, None)
        self.nodes[name] = node = NodeRecord(name, address, tier, threads, code_sha256)
        return node

    def loaded(self, node: NodeRecord, request: int, partitions: Iterable[int]) -> None:
        """Note what a node said that it held when it had done `request`; what a later one leaves out is on its way out."""
        held = frozenset(partitions)
        node.holds |= held if request == node.request else held & (node.wanted or frozenset())

    def compare_code(self, nodes: Iterable[NodeRecord]) -> bool:
        """Set those aside whose code is not the job's, and return whether there are any; without a job all may stay."""
        found = False
        for node in nodes:
            if self._config is not None and (misfit := self._config.code_misfit(node.code_sha256)):
                node.state, node.error, found = "unfit", f"it {misfit}", True
        return found

    def lose(self, node: NodeRecord) -> None:
        """Note that the node's process is gone."""
        node.gone, node.holds = True, frozenset()
        if node.state != "drained":
            node.state = "lost"

    def notice(self, name: str, seconds_left: float, about: Mapping[str, Any] | None) -> bool:
        """Note that the market takes a node, once; return whether there is such a node."""
        node = self.nodes.get(name)
        if node is None or node.gone:
            return False
        if not node.noticed:
            node.noticed = True
            seq = len(self.notices) + 1
            self.notices.append({"node": name, "seconds_left": seconds_left, "seq": seq, "about": about})
        return True

    def drain(self, names: Iterable[str], until_s: float, works_on: bool = False) -> None:
        """Let nodes finish what they run, by `until_s` at the latest; unknown and gone ones are left out.

        `works_on`: those that are ready work on, until they are told otherwise (`end_work`).
        """
        for name in names:
            node = self.nodes.get(name)
            if node is None or node.gone:
                continue
            node.until_s = until_s if node.until_s is None else min(until_s, node.until_s)
            if works_on and node.state in ("ready", "leaving"):
                node.state = "leaving"
            elif node.state in ("joining", "ready", "leaving", "unfit"):
                node.state = "draining"

    def end_work(
        self, is_time: Callable[[NodeRecord], bool], must: Callable[[NodeRecord], bool], begun: Callable[[int], int]
    ) -> bool:
        """Give those who are leaving nothing new to do, where it is time for that; return whether there are any.

        Those for whom `is_time` end with the last clock that one of them has begun; who `must` end, at once.

        Parameters
        ----------
        begun : callable
            Returns the last clock of a partition that is done or under way.
        """
        over = [node for node in self.in_state("leaving") if is_time(node)]
        before = [node.last_clock for node in self.in_state("draining") if node.last_clock is not None]
        last = max([*before, *(begun(part) for node in over for part in self.placement.owned_by(node.name))], default=0)
        ended = False
        for node in over:
            node.last_clock = last if node.last_clock is None else node.last_clock
            if must(node) or all(begun(part) >= node.last_clock for part in self.placement.owned_by(node.name)):
                node.state, ended = "draining", True
        return ended

    def overdue(self, now_s: float) -> list[str]:
        """Return the draining nodes whose time is over."""
        return [node.name for node in self.in_state("draining") if node.until_s is not None and now_s >= node.until_s]

    def settle(self, busy: Callable[[str], bool]) -> None:
        """Call those drained that are no longer `busy` (they run nothing and serve nothing)."""
        for node in self.in_state("draining"):
            if not busy(node.name):
                node.state = "drained"

    # -- the plan -------------------------------------------------------------------------------------------------

    def take_over(self) -> None:
        """Give every partition without an owner that is there to somebody who is."""
        seats = [node.seat for node in self.in_state("ready", "leaving")]
        self.placement = take_over(self.placement, seats, self.target)

    def deal(self) -> None:
        """Give what its owner has not loaded to whoever is to have it in the long run; nothing is to run.

        After several losses, one after the other, it lies scattered.
        """
        ready = {node.name: node.seat for node in self.in_state("ready") if node.tier != self.resting}
        loaded = tuple(
            owner if owner is not None and (owner not in ready or part in ready[owner].holds) else None
            for part, owner in enumerate(self.placement.owner)
        )
        wanted = balance(loaded, list(ready.values()))
        owners = tuple(
            new if there is None and new is not None else old
            for there, new, old in zip(loaded, wanted, self.placement.owner, strict=True)
        )
        self.placement = replace(self.placement, owner=owners)

    def switch(self) -> None:
        """Give every partition to whom it is planned for, if he has loaded it; one without an owner to somebody who is there."""
        self.take_over()
        # Those who are to rest work until others have loaded.
        seats = [node.seat for node in self.in_state("ready", "leaving")]
        # Who is leaving keeps what he owns while he can work on it; until then his heirs have their share of the rest.
        leaving = {node.name for node in self.in_state("leaving")}
        now = tuple(o if o in leaving else t for o, t in zip(self.placement.owner, self.target, strict=True))
        share = leaving | {node.name for node in self._candidates}
        shares = quotas(self.placement.owner, [seat for seat in seats if seat.node in share])
        self.placement = switch(self.placement, now, seats, shares if leaving else None)

    @property
    def _candidates(self) -> list[NodeRecord]:
        """Those who are to own something in the long run."""
        return [node for node in self.in_state("joining", "ready") if node.tier != self.resting]

    def replan(self, begun: bool) -> list[Instruction]:
        """Bring the placement in line with the nodes; return the loads that the plan still lacks.

        Parameters
        ----------
        begun : bool
            Whether partitions have owners already; before the shards are open there is only a target.
        """
        config = self._config
        if config is None:
            return []
        candidates = self._candidates
        names = {node.name for node in candidates}
        held = tuple(
            planned if planned in names else owner if owner in names else None
            for owner, planned in zip(self.placement.owner, self.target, strict=True)
        )
        self.target = balance(held, [node.seat for node in candidates])
        if begun and not any(node.state in ("joining", "draining") and not node.gone for node in self.nodes.values()):
            self.target = tidied(self.target, [node.seat for node in candidates])
        if begun:
            self.switch()
        shares: dict[str | None, list[int]] = {}
        for partition, owner in enumerate(self.target):
            shares.setdefault(owner, []).append(partition)
        loads: list[Instruction] = []
        for node in candidates:
            share = frozenset(shares.get(node.name, ()))
            if node.wanted is not None and share <= node.wanted | node.holds:
                continue
            node.wanted = share | frozenset(self.placement.kept_by(node.name))
            if node.tier == "reliable":
                node.wanted |= node.holds  # for when all the others go at once
            node.holds &= node.wanted  # the rest makes room: who stays for days does not come to hold all there is
            node.request += 1
            loads.append(LoadPartitions(node.name, node.address, config, node.request, tuple(sorted(node.wanted))))
        return loads + self._of_resting(config)

    def _of_resting(self, config: JobConfig) -> list[Instruction]:
        """Return what newcomers of a tier that rests are to load: nothing, for they are there to serve and keep."""
        loads: list[Instruction] = []
        for node in self.in_state("joining"):
            if node.tier == self.resting and node.wanted is None:
                node.wanted, node.request = frozenset(), node.request + 1
                loads.append(LoadPartitions(node.name, node.address, config, node.request, ()))
        return loads
