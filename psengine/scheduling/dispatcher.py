"""Which tasks go to which node now, as messages.

It puts the table, which says what may run, together with the placement, which says where. What failed is held back
until the next tick, and for longer each time that its node fails, so that a node that cannot work does not spin.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from proteus_spot.psengine.drivers.interface import Read, Task
from proteus_spot.psengine.membership.node_record import NodeRecord
from proteus_spot.psengine.membership.placement import Placement
from proteus_spot.psengine.protocol.events import BatchFailed
from proteus_spot.psengine.protocol.instructions import Dispatch, TakeStates
from proteus_spot.psengine.protocol.moved_state import StateRef
from proteus_spot.psengine.scheduling.driver_host import DriverHost
from proteus_spot.psengine.scheduling.task_table import TaskTable
from proteus_spot.psengine.tables.tree_sum import largest_subtrees

#: Sums up to which a batch is sent without the rest of its node's partitions, which others are about to complete.
_SUMS = 2
#: Number of tasks for each core of a node from which on no further batch is sent to it.
_TASKS_A_CORE = 2
#: Number of failures of a node up to which what failed is held back until the next tick only; after them, for how many
#: seconds: at first, and at most.
_FEW_FAILURES, _AGAIN_S, _MOST_AGAIN_S = 2, 0.25, 60.0
#: Minimum size of a node's next batch if it waits for all of it, as a multiple of its last one.
_TIMES = 2


class BatchDispatcher:
    """Dispatches of one job; every one of them is entered in `tasks`."""

    def __init__(self, tasks: TaskTable, driver: DriverHost) -> None:
        self._tasks, self._driver = tasks, driver
        self._batches = 0
        #: {partition: the node whose batch failed, and until when that node is not sent the partition's task}.
        self._held_back: dict[int, tuple[str, float]] = {}
        #: Number of tasks in the last two batches of each node: one of them may have been to catch up.
        self._sizes: dict[str, tuple[int, int]] = {}
        #: {partition: its state that is to be sent, and the address of the process that has been instructed to take
        #: it}.
        self._taken: dict[int, tuple[StateRef, str]] = {}
        #: The placement that the tasks that follow others were last compared with.
        self._compared: Placement | None = None

    def orders(
        self,
        placement: Placement,
        ready: Mapping[str, NodeRecord],
        limit: int | None,
        map_version: int,
        generation: int,
        ending: Collection[str] = (),
    ) -> list[Dispatch]:
        """Dispatch whatever may run: one message a node and group.

        With stale reads in groups of some partitions, a node has several batches in flight, as long as it has fewer
        tasks than two for each core: while some read and push, others run.

        With stale reads in groups of all partitions, a node that runs all of its partitions in one group is sent the
        next group at once: it follows. A node that is about to end is not. Tasks that read rows follow likewise, once
        the writers of the rows were sent theirs.

        Otherwise, in groups of all partitions, a node that runs something is sent only the rest of that group, all of
        it, and others only what is of their earliest group: each batch reads and pushes for itself, and a partition
        that has fallen behind the node's others would else be a separate batch forever. For the same reason a node that
        has taken over partitions waits for the nodes that are about to complete them, if they are many, or if its own
        are in many pieces. With reads of rows a node that runs something is sent only what is of an earlier group: what
        runs may wait for that.

        Parameters
        ----------
        ready : mapping
            {name: node}; other owners are given nothing.
        limit : int or None
            No group after this one is begun.
        map_version, generation : int
            Version and generation of the shard map that the nodes must have.
        ending : collection of str
            Names of leaving nodes that have time for what they run, and no more.
        """
        tasks, driver = self._tasks, self._driver
        completed_by = tasks.completed_by
        groups: dict[tuple[str, int, Read, bool], list[int]] = {}
        first: dict[str, int] = {}
        for task, withdrawn in tasks.ready(limit):
            owner = placement.owner[task.partition]
            if withdrawn and owner not in ready:
                owner = next(iter(ready), None)  # any node can run a withdrawn task
            if owner is not None and owner in ready and not self._is_held_back(task.partition, owner):
                groups.setdefault((owner, task.group, task.read, withdrawn), []).append(task.partition)
                first[owner] = min(task.group, first.get(owner, task.group))
        out = []
        for (name, group, read, withdrawn), partitions in groups.items():
            stale = read == "parent" and not withdrawn
            if read == "rows" and not withdrawn and (group > first[name] or tasks.first_running_on(name) <= group):
                continue
            if stale and not self._may_send(ready[name], group, partitions, first[name], placement):
                continue
            certain = (
                not withdrawn
                and (limit is None or group < limit)
                and tasks.is_full(group)
                and all(driver.next_is_certain(partition, group + 1) for partition in partitions)
            )
            order = self._order(ready[name], group, partitions, read)
            out.append(replace(order, completed_by=completed_by, goes_on=certain))
        out += [
            self._order(ready[name], group, partitions, read)
            for (name, group, read), partitions in self._following(placement, ready, limit, ending).items()
        ]
        return [replace(order, map_version=map_version, generation=generation) for order in out]

    def _order(self, node: NodeRecord, group: int, partitions: list[int], read: Read) -> Dispatch:
        """Enter a batch in the table, and return it."""
        tasks, name = self._tasks, node.name
        self._batches += 1
        self._sizes[name] = len(partitions), self._sizes.get(name, (0, 0))[0]
        started = tuple(tasks.start(partition, name) for partition in partitions)
        return Dispatch(
            node=name,
            address=node.address,
            batch=self._batches,
            group=group,
            tasks=started,
            completions=tasks.completions if read == "parent" else tasks.n_updates,
            committed=tasks.common,
            map_version=0,
            generation=0,
            read=read,
            apart=group > tasks.sealed,
        )

    def _following(
        self, placement: Placement, ready: Mapping[str, NodeRecord], limit: int | None, ending: Collection[str]
    ) -> dict[tuple[str, int, Read], list[int]]:
        """Return the batches that are sent before the ones that they follow are completed, by node, group and read.

        A node runs all of its partitions then, in groups of all partitions: they stay in step. It may still run some
        that are others' by now. Partitions that have no task before to follow, since they completed it in another
        batch, join the others.
        """
        batches: dict[tuple[str, int, Read], list[int]] = {}
        for task in self._tasks.may_follow(limit):
            name = self._tasks.running[task.partition].node
            if self._goes_to(name, task, placement):
                batches.setdefault((name, task.group, task.read), []).append(task.partition)
        batches = {about: found for about, found in batches.items() if about[0] in ready and about[0] not in ending}
        if any(tuple(found) != placement.owned_by(name) for (name, _, _), found in batches.items()):
            for task, withdrawn in self._tasks.ready(limit):
                about = placement.owner[task.partition] or "", task.group, task.read
                if about in batches and not withdrawn and self._goes_to(about[0], task, placement):
                    batches[about].append(task.partition)
        return {
            about: sorted(found) for about, found in batches.items() if self._in_step(about, found, placement, ready)
        }

    def _goes_to(self, name: str, task: Task, placement: Placement) -> bool:
        """Return whether a task may be sent to a node before the one before is completed."""
        partition = task.partition
        stays = placement.owner[partition] == name
        return stays and not self._is_held_back(partition, name) and self._tasks.is_full(task.group)

    def _in_step(
        self, about: tuple[str, int, Read], partitions: Collection[int], placement: Placement, ready: Collection[str]
    ) -> bool:
        """Return whether a node runs all of its partitions in a batch, but for those that leaving nodes complete.

        These come in a batch of their own: a node that waited for them would have nothing to run.
        """
        name, group, read = about
        owned, tasks = set(placement.owned_by(name)), self._tasks
        if read != "parent" or not owned.issuperset(partitions):
            return owned == set(partitions)
        for partition in owned.difference(partitions):
            sent = tasks.running.get(partition)
            in_batch = sent is not None and (sent.node, sent.group) == (name, group)
            comes = (sent is None or sent.node not in ready) and tasks.begun(partition) >= group - 1
            if not in_batch and not comes:
                return False
        return True

    def recalls(self, placement: Placement, ready: Collection[str], completing: Collection[str] = ()) -> dict[str, int]:
        """Return the group whose tasks are to come back from each node, since its partitions are others now.

        They follow others there. The partitions that stay with the node come back, too, if it is to run them in step
        with those that it has taken over. The nodes `completing` are about to leave, and have time for all that they
        were sent.
        """
        if placement is self._compared or not self._tasks.following:
            return {}
        self._compared = placement
        batches: dict[tuple[str, int, Read], list[int]] = {}
        for partition, sent in self._tasks.following.items():
            batches.setdefault((sent.node, sent.group, sent.task.read), []).append(partition)
        return {
            about[0]: about[1]
            for about, partitions in sorted(batches.items())
            if about[0] not in completing and not self._in_step(about, partitions, placement, ready)
        }

    def states_to_take(
        self, placement: Placement, ready: Mapping[str, NodeRecord], draining: Sequence[NodeRecord]
    ) -> list[TakeStates]:
        """Return which states that tasks on draining nodes are to leave the next owners of their partitions take.

        They are taken while other tasks of their group still run, and links are idle.
        """
        addresses = {node.name: node.address for node in draining if self._tasks.running_on(node.name)}
        by_heir: dict[str, list[StateRef]] = {}
        for partition, running in self._tasks.running.items() if addresses else ():
            heir = ready.get(placement.owner[partition] or "")
            if heir is None or running.node not in addresses or running.withdrawn or partition not in heir.holds:
                continue
            state = StateRef(partition, running.group, running.attempt, addresses[running.node])
            if self._tasks.states.current(partition) and self._taken.get(partition) != (state, heir.address):
                self._taken[partition] = state, heir.address
                by_heir.setdefault(heir.name, []).append(state)
        return [TakeStates(name, ready[name].address, tuple(states)) for name, states in by_heir.items()]

    def _may_send(self, node: NodeRecord, group: int, partitions: list[int], first: int, placement: Placement) -> bool:
        """Return whether a batch with stale reads is sent now; `first`: the earliest group of the node's tasks."""
        running = self._tasks.running_on(node.name)
        if not self._tasks.is_full(group):
            return running < _TASKS_A_CORE * node.threads
        owned = placement.owned_by(node.name)
        if running:
            return self._completes(node.name, group, partitions, owned)
        return group == first and not self._waits(node.name, group, partitions, owned)

    def _completes(self, name: str, group: int, partitions: Collection[int], owned: Collection[int]) -> bool:
        """Return whether a node runs all of its other partitions in that group: then none falls behind."""
        under_way = [self._tasks.running.get(partition) for partition in set(owned).difference(partitions)]
        return all(sent is not None and (sent.node, sent.group) == (name, group) for sent in under_way)

    def _waits(self, name: str, group: int, partitions: list[int], owned: Sequence[int]) -> bool:
        """Return whether a node's batch waits for the nodes that are about to complete the rest of its partitions.

        When many nodes leave, their partitions become free one by one. A node that begins with some of them has two
        batches instead of one, and sends a sum of each piece of a batch in pieces, as large as the table. Waiting costs
        part of a recent group: it pays if the next group is at least twice as long, or in pieces.
        """
        n_partitions = self._tasks.n_partitions
        under_way = [(partition, self._tasks.running.get(partition)) for partition in owned]
        coming = [
            p
            for p, of in under_way
            if of is not None and of.node != name and of.group == group - 1 and p not in self._tasks.following
        ]
        if not coming:
            return False
        sums = len(largest_subtrees(partitions, n_partitions))
        in_pieces = sums > _SUMS and len(largest_subtrees([*partitions, *coming], n_partitions)) < sums
        return in_pieces or len(partitions) + len(coming) >= _TIMES * max(self._sizes.get(name, (0, 0)))

    def failed(self, event: BatchFailed) -> list[int]:
        """Return the partitions whose latest attempt was in the batch."""
        if event.recalled:
            for partition, attempt in event.tasks:
                self._tasks.note_recalled(partition, event.group, attempt)
        return [p for p, attempt in event.tasks if self._tasks.forget(p, event.group, attempt)]

    def hold_back(self, partitions: Sequence[int], event: BatchFailed, failures: int) -> None:
        """Do not send tasks that have failed to their node again, by the number of its `failures`."""
        few = failures <= _FEW_FAILURES
        pause_s = 0.0 if few else min(_AGAIN_S * 2.0 ** (failures - _FEW_FAILURES - 1), _MOST_AGAIN_S)
        self._held_back |= dict.fromkeys(partitions, (event.node, event.now_s + pause_s))

    def _is_held_back(self, partition: int, node: str) -> bool:
        return self._held_back.get(partition, ("",))[0] == node

    def tick(self, now_s: float) -> None:
        """Hold nothing back any longer whose time has come."""
        self._held_back = {part: held for part, held in self._held_back.items() if now_s < held[1]}

    def roll_back(self) -> None:
        """Hold nothing back: what failed will be another attempt."""
        self._held_back.clear()
