"""Which process has the state of each partition.

A task that leaves a state leaves it in the process that ran it. The next task of the partition names it (see
`StateRef`), so that another node can have it sent. A process that has the only copy of a state that is needed may not
leave, and if it is lost, the job rolls back to the last replication round.

Partitions without state are not in here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import replace

from proteus_spot.psengine.protocol.moved_state import StateRef


class StateRefs:
    """Present and recent states of the partitions of one job."""

    def __init__(self) -> None:
        #: {partition: its states, by rising group}.
        self._refs: dict[int, list[StateRef]] = {}
        #: Number of present states by the address of their process.
        self._held: Counter[str] = Counter()

    def __bool__(self) -> bool:
        """Return whether a partition has state."""
        return bool(self._refs)

    def current(self, partition: int) -> StateRef | None:
        """Return the state that the partition's next task begins with; None: it has none, or its first one."""
        refs = self._refs.get(partition)
        return refs[-1] if refs else None

    def at(self, group: int) -> tuple[StateRef, ...]:
        """Return the state of each partition when all tasks of the groups up to `group` are done, and none of later."""
        found = []
        for _, refs in sorted(self._refs.items()):
            past = [ref for ref in refs if ref.group <= group]
            if past:
                found.append(past[-1])
        return tuple(found)

    def completed(self, partition: int, group: int, attempt: int, address: str) -> None:
        """Note that a task has left a state."""
        refs = self._refs.setdefault(partition, [])
        if refs:
            self._held[refs[-1].address] -= 1
        refs.append(StateRef(partition, group, attempt, address))
        self._held[address] += 1

    def undo(self, partition: int, group: int) -> None:
        """Forget the state that a task of `group` has left, the last one of its partition: it does not count."""
        refs = self._refs.get(partition, [])
        if refs and refs[-1].group == group:
            self._held[refs.pop().address] -= 1
            if refs:
                self._held[refs[-1].address] += 1
            else:
                del self._refs[partition]

    def taken(self, states: Iterable[StateRef], address: str) -> None:
        """Note that the process at `address` has received copies of these states: it has them from now on."""
        for state in states:
            refs = self._refs.get(state.partition, [])
            for at, ref in enumerate(refs):
                if (ref.group, ref.attempt) == (state.group, state.attempt):
                    refs[at] = replace(ref, address=address, checkpoint="")
                    if at == len(refs) - 1:
                        self._held[ref.address] -= 1
                        self._held[address] += 1

    def saved(self, checkpoint: str, carried: Collection[tuple[int, str]]) -> bool:
        """Note that a new checkpoint has replaced the earlier ones; return whether no state was lost by that.

        `carried` are the (partition, earlier checkpoint) whose states it includes.
        """
        is_whole = True
        for partition, refs in self._refs.items():
            for at, ref in enumerate(refs):
                if ref.checkpoint and ref.checkpoint != checkpoint:
                    is_whole &= (partition, ref.checkpoint) in carried
                    refs[at] = replace(ref, checkpoint=checkpoint)
        return is_whole

    def drop_before(self, common: int) -> None:
        """Forget states that are not needed once all tasks of the groups up to `common` are done."""
        for refs in self._refs.values():
            while len(refs) > 1 and refs[1].group <= common:
                del refs[0]

    def held_at(self, address: str) -> int:
        """Return the number of partitions whose present state is in the process at `address`."""
        return self._held[address]

    def lost(self, addresses: Collection[str]) -> list[int]:
        """Return the partitions whose present state was in one of these processes."""
        if not any(self._held[address] for address in addresses):
            return []
        return [partition for partition, refs in self._refs.items() if refs[-1].address in addresses]

    def restore(self, refs: Collection[StateRef]) -> None:
        """Continue from these states: the job has rolled back, or begins."""
        self._refs = {ref.partition: [ref] for ref in refs}
        self._held = Counter(ref.address for ref in refs if ref.address)
