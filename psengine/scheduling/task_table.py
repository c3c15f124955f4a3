"""Table of tasks: what is dispatched and not sent yet, what runs where under which attempt, what is committed.

A driver dispatches tasks into queues, one for each partition; the controller sends the first task of each
queue to the partition's node. Tasks of one group (group) are committed together, groups in order. Where a task reads
"parent", or "rows" whose writers were sent their tasks, the next one may be sent to the same node before it is
completed: it follows the first one.

Invariants: a partition has at most one task under way, and one that follows it on the same node; its tasks run, and are
completed, in the order of their dispatch; only the latest attempt of a task can complete it, so each update counts
once; a group is committed when it is sealed, all of its tasks are completed, and the group before is committed.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Sequence
from dataclasses import replace
from math import inf

from proteus_spot.psengine.drivers.interface import Task
from proteus_spot.psengine.membership.state_refs import StateRefs
from proteus_spot.psengine.protocol.instructions import TaskKey
from proteus_spot.psengine.scheduling.task_records import Group, Running, check_after


class TaskTable:
    """State of all tasks of a job with `n_partitions` partitions."""

    def __init__(self, n_partitions: int) -> None:
        self.n_partitions = n_partitions
        #: The last committed group.
        self.common = 0
        #: Number of tasks in the committed groups.
        self.n_updates = 0
        #: Number of completed tasks, those of groups that are not committed included.
        self.completions = 0
        #: The last group that is sealed; the one after it is open.
        self.sealed = 0
        #: {partition: its task under way}, in order of dispatch.
        self.running: dict[int, Running] = {}
        #: {partition: the task that follows the one under way, on the same node}.
        self.following: dict[int, Running] = {}
        #: Number of dispatches beyond the first of a task; one that a node gave back before it began does not count.
        self.repeated = 0
        #: Number of completions that came from a superseded attempt, or twice.
        self.ignored = 0
        #: The highest group of which any task was sent.
        self.last_dispatched = 0
        self._queues: dict[int, deque[tuple[Task, bool]]] = {}
        self._groups: dict[int, Group] = {}
        #: Partitions with a queue and no task under way.
        self._waiting: set[int] = set()
        #: Partitions with a task under way, of which the next one may follow it.
        self._may_follow: set[int] = set()
        self._running_on = Counter[str]()
        #: {partition: {group: attempt at its task, which was sent and is not completed}}.
        self._attempts: dict[int, dict[int, int]] = {}
        #: {partition: the highest group that it was ever sent a task of}.
        self._reached: dict[int, int] = {}
        #: {partition: the group of its task that was recalled before it began}.
        self._recalled: dict[int, int] = {}
        #: Attempts are counted from here: after a rollback, those of before are the lower ones.
        self._base = 0
        self._highest = 0
        #: Where the states of the partitions are.
        self.states = StateRefs()
        self._committed_by = 0
        #: Number of partitions that have completed a task of a group that is not committed.
        self._ahead = 0
        #: Tasks of groups that are not committed, as (group, partition), whose updates a task that was sent reads.
        self._awaited: set[tuple[int, int]] = set()

    # -- of the driver --------------------------------------------------------------------------------------------

    def enqueue(self, task: Task) -> None:
        """Append a task to its partition's queue.

        Raises
        ------
        ValueError
            If the partition does not exist or has a task in this group, the group is not the open one, or what is to
            be written before cannot be waited for.
        """
        partition = task.partition
        if not 0 <= partition < self.n_partitions:
            raise ValueError(f"there is no partition {partition}: they are 0 to {self.n_partitions - 1}")
        if task.group != self.sealed + 1:
            raise ValueError(f"a task of group {task.group} was dispatched: group {self.sealed + 1} is open")
        group = self._groups.setdefault(task.group, Group())
        if partition in group.members:
            raise ValueError(f"partition {partition} has two tasks in group {task.group}")
        check_after(task, self.n_partitions, self._open_tasks)
        group.members.add(partition)
        group.open.add(partition)
        self._queues.setdefault(partition, deque()).append((task, False))
        self._note(partition)

    def _open_tasks(self, partition: int) -> list[Task]:
        """Return the tasks of a partition that are not completed, in order."""
        return [sent.task for sent in self._sent(partition)] + [task for task, _ in self._queues.get(partition, ())]

    def _sent(self, partition: int) -> list[Running]:
        """Return the task under way of a partition, and the one that follows it."""
        sent = (self.running.get(partition), self.following.get(partition))
        return [task for task in sent if task is not None]

    def seal(self, group: int, members: Collection[int] | None = None) -> int:
        """Close the open group, and return its number of tasks; those of other partitions than `members` are withdrawn.

        One of them may be completed: its driver has not been told so. It is withdrawn all the same.

        Raises
        ------
        ValueError
            If the group is not the open one, a member has no task in it, or a task that was sent reads what a withdrawn
            one writes.
        """
        if group != self.sealed + 1:
            raise ValueError(f"group {group} was sealed: group {self.sealed + 1} is open")
        dispatched = self._groups.setdefault(group, Group())
        left_out = set() if members is None else dispatched.members - dispatched.withdrawn - set(members)
        if members is not None and not dispatched.members >= set(members):
            raise ValueError(f"group {group} was sealed with partitions that have no task in it")
        if again := dispatched.withdrawn & set(members or ()):
            raise ValueError(f"group {group} was sealed with partition {min(again)}, whose task is withdrawn")
        dispatched.sealed, self.sealed = True, group
        for partition in sorted(left_out):
            self._reopen(partition, group)
            self.withdraw(partition, group)
        return len(dispatched.members)

    def _reopen(self, partition: int, group: int) -> None:
        """Put a completed task of the last group back in its queue, to be sent under a higher attempt.

        The server has its update apart from those of others (see `Dispatch.apart`), so no other task is repeated.
        """
        of_group = self._groups[group]
        if (done := of_group.completed.pop(partition, None)) is not None:
            of_group.open.add(partition)
            self._attempts[partition][group] = done.attempt
            self._ahead -= 1
            self.states.undo(partition, group)
            self._queues[partition].appendleft((done.task, False))

    def is_next(self, task: Task) -> bool:
        """Return whether a task is the next one of its partition."""
        queue = self._queues.get(task.partition)
        return bool(queue) and queue is not None and queue[0][0] is task

    def is_withdrawn(self, task: Task) -> bool:
        """Return whether a task of a group that is not committed is withdrawn."""
        group = self._groups.get(task.group)
        return group is not None and task.partition in group.withdrawn

    def withdraw(self, partition: int, group: int | None = None) -> None:
        """Withdraw the incomplete tasks of a partition, or that of one group.

        A task that was sent may have left an update: a withdrawn task is sent in its place, which replaces it. It
        replaces the whole sum that its node sent, so that the other tasks of the group on that node are repeated.

        Raises
        ------
        ValueError
            If a task that was sent reads what the withdrawn one writes.
        """
        awaited = [number for number, writer in self._awaited if writer == partition and group in (None, number)]
        if read := [task.group for task in self._open_tasks(partition) if task.group in awaited]:
            raise ValueError(
                f"partition {partition} cannot be withdrawn from group {read[0]}: a task that reads its rows was sent"
            )
        for sent in self._sent(partition):
            if group in (None, sent.group):
                self._put_back_batch(sent.node, sent.group)
        queue: deque[tuple[Task, bool]] = deque()
        for task, withdrawn in self._queues.get(partition, ()):
            if group not in (None, task.group):
                queue.append((task, withdrawn))
            elif withdrawn or task.group in self._attempts.get(partition, ()):
                queue.append((task, True))
                self._groups[task.group].withdrawn.add(partition)
            else:
                self._groups[task.group].members.discard(partition)
                self._groups[task.group].open.discard(partition)
        self._queues[partition] = queue
        self._note(partition)

    @property
    def idle(self) -> bool:
        """Whether nothing is under way and nothing is queued."""
        return not self.running and not self._waiting

    def queued(self) -> tuple[Task, ...]:
        """Return the tasks of groups that are not committed, under way or not yet sent, by group and partition."""
        queued = (task for queue in self._queues.values() for task, withdrawn in queue if not withdrawn)
        sent = (*self.running.values(), *self.following.values())
        running = (task.task for task in sent if not task.withdrawn)
        return tuple(sorted((*queued, *running), key=lambda task: (task.group, task.partition)))

    # -- of the controller ----------------------------------------------------------------------------------------

    def ready(self, limit: int | None) -> list[tuple[Task, bool]]:
        """Return the next task of each partition that may be sent, and whether it is withdrawn, by partition.

        `limit`: no group after it is begun; None: any.
        """
        if not self._waiting:
            self._waiting = set()  # a set that was large is slow to iterate even when it is empty
            return []
        heads = (self._queues[partition][0] for partition in sorted(self._waiting))
        return [
            (task, withdrawn)
            for task, withdrawn in heads
            if (limit is None or task.group <= limit)
            and (withdrawn or task.read == "parent" or task.group == self.common + 1 or self._writers_sent(task))
        ]

    def may_follow(self, limit: int | None) -> list[Task]:
        """Return the tasks that may be sent while the ones before are under way, by partition; `limit` as in `ready`.

        Both read "parent", or both "rows", whose writers were sent their tasks. The task has to go to the node on which
        the one before is.
        """
        if not self._may_follow:
            self._may_follow = set()
            return []
        heads = (self._queues[partition][0][0] for partition in sorted(self._may_follow))
        return [
            task
            for task in heads
            if (limit is None or task.group <= limit) and (task.read == "parent" or self._writers_sent(task))
        ]

    def _writers_sent(self, task: Task) -> bool:
        """Return whether all that a task names in `after` was sent.

        If it were sent before them, it could wait for a task that a node has to do after it.
        """
        queues = (self._queues.get(partition) for partition in task.after or ())
        return task.after is not None and all(not queue or queue[0][0].group >= task.group for queue in queues)

    def _writers_running(self, task: Task) -> tuple[tuple[int, int], ...]:
        """Return the tasks, as (group, partition), that a task reads after, and that are not completed.

        Of a partition with two of them the later one counts: it began after the other one.
        """
        found = ((partition, self._sent(partition)) for partition in sorted(set(task.after or ())))
        before = ((partition, [one.group for one in sent if one.group < task.group]) for partition, sent in found)
        return tuple((groups[-1], partition) for partition, groups in before if groups)

    def start(self, partition: int, node: str) -> TaskKey:
        """Note that the partition's next task is sent to `node`; return its attempt (1 for the first) and arguments.

        If a task of the partition is under way, which must be on that node, the next one follows it.
        """
        task, withdrawn = self._queues[partition].popleft()
        attempts = self._attempts.setdefault(partition, {})
        attempts[task.group] = attempt = attempts.get(task.group, self._base) + 1
        self._highest = max(attempt, self._highest)
        before = self.running.get(partition)
        (self.running if before is None else self.following)[partition] = Running(task, attempt, node, withdrawn)
        self._running_on[node] += 1
        self._groups[task.group].running += 1
        self._note(partition)
        was_recalled = self._recalled.pop(partition, None) == task.group
        self.repeated += task.group <= self._reached.get(partition, 0) and not was_recalled
        self._reached[partition] = max(task.group, self._reached.get(partition, 0))
        self.last_dispatched = max(task.group, self.last_dispatched)
        after = () if withdrawn else self._writers_running(task)
        self._awaited.update(after)
        written_by = after[0] if len(after) == len(set(task.after or ())) == 1 else None
        key = TaskKey(partition, attempt, None, task.args, withdrawn, after, written_by)
        if before is not None:
            # What the partition itself has written may be on its way.
            own = ((before.group, partition),) if task.read == "rows" and (before.group, partition) not in after else ()
            return replace(key, follows=(before.group, before.attempt), after=(*after, *own))
        return replace(key, state=self.states.current(partition))

    def complete(self, partition: int, group: int, attempt: int) -> Running | None:
        """Note a completion and return what ran; None when it is late, repeated or superseded and changes nothing."""
        if not self.is_current(partition, group, attempt):
            self.ignored += 1
            return None
        running = self.running.pop(partition)
        self._stop(running)
        if partition in self.following:
            self.running[partition] = self.following.pop(partition)
        del self._attempts[partition][group]
        self._note(partition)
        of_group = self._groups[group]
        of_group.open.discard(partition)
        of_group.completed[partition] = running
        of_group.attempts.add(attempt)
        self.completions += 1
        self._ahead += 1
        return running

    def commit_next(self) -> bool:
        """Commit the group after the last committed one if it is complete; return whether it is."""
        group = self._groups.get(self.common + 1)
        if group is None or not group.sealed or group.open:
            return False
        del self._groups[self.common + 1]
        self.common += 1
        if self._awaited:
            self._awaited = {task for task in self._awaited if task[0] > self.common}
        self.n_updates += len(group.members)
        self._ahead -= len(group.members)
        full = len(group.members) == self.n_partitions and len(group.attempts) == 1
        self._committed_by = next(iter(group.attempts)) if full else 0
        return True

    def roll_back(self, group: int, n_updates: int) -> None:
        """Go to the committed group `group`; no task of a later group is queued, and later attempts are higher.

        It is an earlier one, but for a checkpoint of a group that the job has rolled back from since.
        """
        self._base = self._highest
        for state in (self._attempts, self.running, self.following, self._running_on, self._queues, self._groups):
            state.clear()
        self._waiting.clear()
        self._may_follow.clear()
        self._awaited.clear()
        self.common = self.sealed = group
        self.completions = self.n_updates = n_updates
        self._committed_by = self._ahead = 0

    def give_up(self, node: str) -> list[int]:
        """Put what runs on `node` back in its queue, to be sent under a higher attempt; return the partitions."""
        if not self._running_on[node]:
            return []
        lost = [partition for partition, running in self.running.items() if running.node == node]
        for partition in lost:
            self._put_back(partition)
        return lost

    def forget(self, partition: int, group: int, attempt: int) -> bool:
        """Put a task that failed, and what follows it, back in its queue; return False for a superseded attempt."""
        sent = next((s for s in self._sent(partition) if (s.group, s.attempt) == (group, attempt)), None)
        if sent is None:
            return False
        following = self.following.get(partition)
        if following is not None:
            self._put_back_batch(following.node, following.group)
        if sent is not following:
            self._put_back(partition)
        return True

    def note_recalled(self, partition: int, group: int, attempt: int) -> None:
        """Note that the node has not begun a task that was recalled; a superseded attempt changes nothing."""
        if any((sent.group, sent.attempt) == (group, attempt) for sent in self._sent(partition)):
            self._recalled[partition] = group

    def is_current(self, partition: int, group: int, attempt: int) -> bool:
        """Return whether this attempt at a task is under way, and the latest one; not of one that follows another."""
        running = self.running.get(partition)
        return running is not None and (running.group, running.attempt) == (group, attempt)

    def running_on(self, node: str) -> int:
        """Return how many tasks are under way on `node`."""
        return self._running_on[node]

    def first_running_on(self, node: str) -> float:
        """Return the first group of which a task is under way on `node`; infinity if none is."""
        if not self._running_on[node]:
            return inf
        return min(running.group for running in self.running.values() if running.node == node)

    @property
    def completed_by(self) -> int:
        """The attempt under which every partition completed the last committed group.

        0 where that is not known, where they were several, where the group has fewer members, and where one has
        completed a later task already.
        """
        return 0 if self._ahead else self._committed_by

    @property
    def last_begun(self) -> int:
        """The highest group of which something is done or under way since the last rollback."""
        return max((number for number, group in self._groups.items() if group.begun), default=self.common)

    def is_full(self, group: int) -> bool:
        """Return whether a sealed group that is not committed has a task of every partition."""
        found = self._groups.get(group)
        return found is not None and found.sealed and len(found.members) == self.n_partitions

    def begun(self, partition: int) -> int:
        """Return the last group up to which the partition has nothing more to begin."""
        last = self.following.get(partition) or self.running.get(partition)
        return self.completed(partition) if last is None else last.group

    def completed(self, partition: int) -> int:
        """Return the last group up to which the partition has completed its tasks."""
        running = self.running.get(partition)
        queue = self._queues.get(partition)
        if running is not None:
            return running.group - 1
        return queue[0][0].group - 1 if queue else self.sealed

    def _stop(self, sent: Running) -> None:
        self._running_on[sent.node] -= 1
        self._groups[sent.group].running -= 1

    def _put_back(self, partition: int) -> None:
        """Put the task under way of a partition, and the one that follows it, back in its queue."""
        for sent in (self.following.pop(partition, None), self.running.pop(partition, None)):
            if sent is not None:
                self._stop(sent)
                self._queues[partition].appendleft((sent.task, sent.withdrawn))
        self._note(partition)

    def _put_back_batch(self, node: str, group: int) -> None:
        """Put the tasks of a group that a node was sent back in their queues, and the batches that follow them.

        A node sends one sum for all of them, and the servers replace it as a whole.
        """
        batches = [(node, group)]
        while batches:
            batch = batches.pop()
            for partition in [e for e, sent in self.following.items() if (sent.node, sent.group) == batch]:
                sent = self.following.pop(partition)
                self._stop(sent)
                self._queues[partition].appendleft((sent.task, sent.withdrawn))
                self._note(partition)
            for partition in [e for e, sent in self.running.items() if (sent.node, sent.group) == batch]:
                following = self.following.get(partition)
                if following is not None:
                    batches.append((following.node, following.group))
                self._put_back(partition)

    def _note(self, partition: int) -> None:
        """Note whether the partition's next task may be sent, or may follow the one under way."""
        queue, running = self._queues.get(partition), self.running.get(partition)
        self._waiting.discard(partition)
        self._may_follow.discard(partition)
        if not queue:
            return
        if running is None:
            self._waiting.add(partition)
        elif partition not in self.following and not running.withdrawn:
            task, withdrawn = queue[0]
            early = task.read == "parent" or (task.read == "rows" and task.after is not None)
            if early and task.read == running.task.read and not withdrawn:
                self._may_follow.add(partition)


def lost_updates(folded: Sequence[int], n_updates: int) -> int:
    """Return how many updates are missing from the model: the most that any shard lacks of `n_updates`.

    Parameters
    ----------
    folded : sequence of int
        Distinct updates that each shard has folded.
    n_updates : int
        Number of tasks in the committed groups.
    """
    return max((n_updates - count for count in folded), default=0)
