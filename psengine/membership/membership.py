"""The nodes of a job, their states, and which partitions each owns and loads.

It knows neither tasks nor the state of the job: what runs where is an argument.

| state | meaning |
|---|---|
| joining | it loads the requested partitions |
| ready | it may own partitions |
| unfit | quarantined: it cannot load (disk full, no network); it owns nothing; it may serve unless its code differs |
| leaving | it has a notice and works on while time is left (`draining`): it keeps its partitions and its shards |
| draining | it is to leave: it finishes its tasks, then hands over its shards |
| drained | it runs and serves nothing: it can leave |
| lost | its process ended before that |

A quarantined node whose read failed is requested to load again, after growing pauses (`ask_again`).

A leaving node serves its shards until its last clock is common.

Invariants: owners are ready or leaving nodes; a name stands for one process at a time, identified by its address.

Source: Proteus (EuroSys 2017), 3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from proteus_spot.psengine.config import JobConfig, Tier
from proteus_spot.psengine.membership.node_index import NodeIndex
from proteus_spot.psengine.membership.node_record import NodeRecord
from proteus_spot.psengine.membership.placement import (
    Limits,
    Owners,
    Placement,
    balance,
    contiguous_runs,
    quotas,
    switch,
    take_over,
)
from proteus_spot.psengine.protocol.instructions import Instruction, LoadPartitions

#: Seconds until a node whose read failed is requested to load again: at first, and at most.
_AGAIN_S, _MOST_AGAIN_S = 5.0, 60.0


class Membership:
    """Nodes and placement of one job."""

    def __init__(self) -> None:
        self.index = NodeIndex()
        #: Present owners of the partitions; empty before the training has begun.
        self.placement = Placement.empty(0)
        #: Owners of the partitions once every node has loaded the partitions it lacks.
        self.target: Owners = ()
        #: Eviction notices, the first one of each process, as the status shows them.
        self.notices: list[dict[str, object]] = []
        #: Tier whose nodes are not to work: in stage 3 the reliable one.
        self.resting: Tier | None = None
        #: Partitions that stay without owner on purpose.
        self.withheld: frozenset[int] = frozenset()
        self._config: JobConfig | None = None

    def adopt(self, config: JobConfig) -> None:
        """Begin a job; its partitions have no owners yet."""
        self._config = config
        self.placement = Placement.empty(config.n_partitions)
        self.target = self.placement.owner

    # -- views ----------------------------------------------------------------------------------------------------

    @property
    def nodes(self) -> Mapping[str, NodeRecord]:
        """The nodes by name, in the order in which they joined; of those that are gone, the newest ones."""
        return self.index.nodes

    @property
    def present(self) -> Mapping[str, NodeRecord]:
        """The nodes whose process is not gone, by address."""
        return self.index.present

    def in_state(self, *states: str) -> list[NodeRecord]:
        """Return the nodes in one of `states`, in the order in which they joined."""
        return self.index.in_state(*states)

    def process(self, name: str, address: str) -> NodeRecord | None:
        """Return the node `name` if `address` is that of its present process; reports of an earlier one are late."""
        node = self.nodes.get(name)
        return node if node is not None and node.address == address else None

    def at(self, address: str) -> NodeRecord | None:
        """Return the node with a live process at `address`."""
        return self.index.present.get(address)

    def stays(self, tier: Tier) -> int:
        """Return the number of present nodes of a tier without a notice or a drain request."""
        return sum(node.tier == tier for node in self.in_state("joining", "ready", "unfit"))

    @property
    def quarantined(self) -> str:
        """The quarantined nodes with their errors, as one line of text; empty if there are none."""
        return "; ".join(f"{node.name} is unfit: {node.error}" for node in self.in_state("unfit"))

    @property
    def cannot_load(self) -> bool:
        """Whether no present node can load, now or later, and no further reliable node is awaited."""
        present = self.present.values()
        wanted = 0 if self._config is None else self._config.n_reliable
        complete = sum(node.tier == "reliable" for node in present) >= wanted
        return complete and all(node.state == "unfit" and not node.recovers for node in present)

    @property
    def cannot_serve(self) -> bool:
        """Whether all reliable nodes that the job wants are present, but not all of them can serve."""
        tier = [node for node in self.present.values() if node.tier == "reliable"]
        return self._config is not None and len(tier) >= self._config.n_reliable > sum(map(self._serves, tier))

    def servers(self, patient: bool, few: bool = False) -> list[NodeRecord]:
        """Return the nodes to open the shards on; empty while more of them, or a node that can work, are waited for.

        Parameters
        ----------
        patient : bool
            Whether to wait for nodes that still load.
        few : bool
            Whether one reliable node is enough, instead of `n_reliable`.
        """
        servers = self.able_to_serve
        wanted = 1 if few or self._config is None else self._config.n_reliable
        if len(servers) < wanted or (patient and self.in_state("joining")) or not self.in_state("ready"):
            return []  # quarantined nodes could serve, but not work
        return servers

    @property
    def able_to_serve(self) -> list[NodeRecord]:
        """The nodes that shards may be opened on, or moved to."""
        return [node for node in self.in_state("ready", "unfit") if self._serves(node)]

    def _serves(self, node: NodeRecord) -> bool:
        """Whether shards can be opened on a node: it may lack a disk, but not the job's code or our version."""
        return node.tier == "reliable" and self._config is not None and not self._misfit(self._config, node)

    # -- nodes join and leave -------------------------------------------------------------------------------------

    def join(
        self, name: str, address: str, tier: Tier, threads: int, code_sha256: str = "", misfit: str = ""
    ) -> NodeRecord:
        """Add a process, as the newest node; it replaces one of the same name."""
        node = NodeRecord(name, address, tier, threads, code_sha256, misfit)
        self.index.add(node)
        return node

    def loaded(self, node: NodeRecord, request: int, partitions: Iterable[int]) -> None:
        """Note the partitions that a node reports for `request`; those that a later request omits are being dropped."""
        held = frozenset(partitions)
        node.holds |= held if request == node.request else held & (node.wanted or frozenset())

    def quarantine_misfits(self, nodes: Iterable[NodeRecord]) -> bool:
        """Quarantine nodes of another version or with other code than the job's; return whether there are any.

        Without a job all stay.
        """
        found = False
        for node in nodes:
            if self._config is not None and (misfit := self._misfit(self._config, node)):
                node.state, node.error, found = "unfit", misfit, True
        return found

    def quarantine(self, node: NodeRecord, error: str, again: bool, now_s: float) -> None:
        """Quarantine a node that cannot load; `again`: it is requested to load again, less often each time."""
        node.state, node.error, node.recovers = "draining" if node.state == "leaving" else "unfit", error, again
        node.again_s = now_s + min(_AGAIN_S * 2.0**node.failed_reads, _MOST_AGAIN_S) if again else None
        node.failed_reads += again

    def ask_again(self, now_s: float) -> list[Instruction]:
        """Return load requests for the quarantined nodes that may be able to read by now, of what they were to have."""
        config, loads = self._config, list[Instruction]()
        for node in self.in_state("unfit"):
            if config is None or node.gone or node.again_s is None or now_s < node.again_s:
                continue
            node.again_s, node.request = None, node.request + 1
            node.wanted = (node.wanted or frozenset()) | node.holds
            wanted = tuple(sorted(node.wanted))
            loads.append(LoadPartitions(node.name, node.address, config, node.request, wanted))
        return loads

    def recover(self, node: NodeRecord, request: int) -> None:
        """End the quarantine of a node that has loaded what it was asked for again."""
        if node.state == "unfit" and node.recovers and request == node.request:
            node.state, node.error, node.recovers, node.again_s = "ready", "", False, None

    @staticmethod
    def _misfit(config: JobConfig, node: NodeRecord) -> str:
        code = config.code_misfit(node.code_sha256)
        return node.misfit or (f"it {code}" if code else "")

    def lose(self, node: NodeRecord) -> None:
        """Note that the node's process was lost."""
        node.gone, node.holds = True, frozenset()
        if node.state != "drained":
            node.state = "lost"

    def notice(self, name: str, seconds_left: float, about: Mapping[str, Any] | None) -> bool:
        """Note an eviction notice, once per process; return whether the node is present."""
        node = self.nodes.get(name)
        if node is None or node.gone:
            return False
        if not node.noticed:
            node.noticed = True
            seq = len(self.notices) + 1
            self.notices.append({"node": name, "seconds_left": seconds_left, "seq": seq, "about": about})
        return True

    def drain(self, names: Iterable[str], until_s: float, works_on: bool = False) -> None:
        """Drain nodes: they finish what they run, by `until_s` at the latest. Unknown and lost nodes are ignored.

        `works_on`: ready nodes work on until `end_work`.
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
        """End the work of leaving nodes whose time has come; return whether one of them is draining by that.

        Parameters
        ----------
        is_time : callable
            Returns whether a node is to end, with the last clock that any of these nodes has begun.
        must : callable
            Returns whether a node is to end at once.
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
        """Return the draining nodes whose deadline has passed."""
        return [node.name for node in self.in_state("draining") if node.until_s is not None and now_s >= node.until_s]

    def settle(self, busy: Callable[[str], bool]) -> bool:
        """Mark draining nodes as drained if they are not `busy` (they run nothing and serve nothing).

        Return whether there are any.
        """
        over = [node for node in self.in_state("draining") if not busy(node.name)]
        for node in over:
            node.state = "drained"
        return bool(over)

    # -- placement ------------------------------------------------------------------------------------------------

    @property
    def _limits(self) -> Limits:
        return Limits(None if self._config is None else self._config.max_partitions_per_node, self.withheld)

    def room_for(self, absent: int) -> int:
        """Return how many of `absent` partitions that the driver does without may have an owner, beside all others."""
        most = None if self._config is None else self._config.max_partitions_per_node
        if most is None:
            return absent
        taken = len(self.placement.owner) - absent
        return min(absent, max(0, most * len(self._candidates) - taken))

    def take_over(self) -> None:
        """Give every partition without a present owner to a present node."""
        nodes = [node.capacity for node in self.in_state("ready", "leaving")]
        self.placement = take_over(self.placement, nodes, self.target, self._limits)

    def reassign_unloaded(self, have_states: bool) -> None:
        """Give partitions that their owners have not loaded to balanced owners; call it only while nothing runs.

        After several successive losses they are scattered. Where most have to be loaded in any case, each node gets one
        run at once: later, what was sent to the nodes by then would come back. `have_states`: see `replan`.
        """
        ready = {node.name: node.capacity for node in self.in_state("ready") if node.tier != self.resting}
        loaded = tuple(
            owner if owner is not None and (owner not in ready or part in ready[owner].holds) else None
            for part, owner in enumerate(self.placement.owner)
        )
        wanted = balance(loaded, list(ready.values()), self._limits)
        owners = tuple(
            new if current is None and new is not None else old
            for current, new, old in zip(loaded, wanted, self.placement.owner, strict=True)
        )
        if 2 * loaded.count(None) > len(loaded) and ready.keys() >= set(owners) and self._may_regroup(have_states):
            owners = self.target = contiguous_runs(owners, list(ready.values()))
        self.placement = replace(self.placement, owner=owners)

    def _may_regroup(self, have_states: bool) -> bool:
        """Return whether partitions may move for the sake of runs: no state moves with them, no node comes or goes."""
        return not have_states and not any(not node.gone for node in self.in_state("joining", "draining"))

    def switch(self) -> None:
        """Give every partition to its target owner if that has loaded it, and orphans to present nodes."""
        self.take_over()
        # Nodes of the resting tier work until others have loaded.
        nodes = [node.capacity for node in self.in_state("ready", "leaving")]
        # A leaving node keeps its partitions while it can work; until then its heirs have their share of the rest.
        leaving = {node.name for node in self.in_state("leaving")}
        now = tuple(o if o in leaving else t for o, t in zip(self.placement.owner, self.target, strict=True))
        share = leaving | {node.name for node in self._candidates}
        shares = quotas(self.placement.owner, [node for node in nodes if node.node in share], self._limits)
        self.placement = switch(self.placement, now, nodes, shares if leaving else None)

    @property
    def _candidates(self) -> list[NodeRecord]:
        """Nodes that may be target owners."""
        return [node for node in self.in_state("joining", "ready") if node.tier != self.resting]

    def replan(self, begun: bool, have_states: bool = False) -> list[Instruction]:
        """Bring the placement in line with the nodes; return the loads that the target still lacks.

        Parameters
        ----------
        begun : bool
            Whether partitions have owners already; before the shards are open there is only a target.
        have_states : bool
            Whether partitions have state, which would move with them: they are not moved for the sake of runs.
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
        self.target = balance(held, [node.capacity for node in candidates], self._limits)
        if begun and self._may_regroup(have_states):
            self.target = contiguous_runs(self.target, [node.capacity for node in candidates])
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
            node.wanted = share | frozenset(self.placement.owned_or_previous(node.name))
            if node.tier == "reliable":
                node.wanted |= node.holds  # in case all other nodes are lost at once
            node.holds &= node.wanted  # the rest is dropped, else a node that stays for days would hold everything
            node.request += 1
            wanted = tuple(sorted(node.wanted))
            loads.append(LoadPartitions(node.name, node.address, config, node.request, wanted, self._sources(node)))
        return loads + self._empty_loads_of_resting(config)

    def _sources(self, node: NodeRecord) -> tuple[tuple[int, str], ...]:
        """Return where a node has partitions sent from: their owners, unless these are to leave."""
        ready = self.index.by_name("ready")
        owners = self.placement.owner
        return tuple(
            (partition, owner.address)
            for partition in sorted((node.wanted or frozenset()) - node.holds)
            if (owner := ready.get(owners[partition] or "")) is not None and partition in owner.holds
        )

    def _empty_loads_of_resting(self, config: JobConfig) -> list[Instruction]:
        """Return empty load requests for new nodes of the resting tier, which only serve and store replicas."""
        loads: list[Instruction] = []
        for node in self.in_state("joining"):
            if node.tier == self.resting and node.wanted is None:
                node.wanted, node.request = frozenset(), node.request + 1
                loads.append(LoadPartitions(node.name, node.address, config, node.request, ()))
        return loads
