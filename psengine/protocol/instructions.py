"""Instructions that the controller issues. They are values: the shell carries them out, in order for each node.

Every instruction to a node names its `address`, so that one for a lost process never reaches its successor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from proteus_spot.psengine.config import JobConfig
from proteus_spot.psengine.drivers.interface import Read
from proteus_spot.psengine.protocol.checkpoint import Checkpoint
from proteus_spot.psengine.protocol.moved_state import StateRef


@dataclass(frozen=True)
class TaskKey:
    """One attempt at a task: the work of one partition in one group.

    Attributes
    ----------
    partition, attempt
        The partition, and how often the task was dispatched.
    state
        Where its partition's state is; None if it has none, or is to begin in its first state.
    args
        The driver's arguments for the task.
    withdrawn
        Whether the driver does without the task. The node then runs nothing and needs no input: it pushes an empty
        update, which replaces that of any earlier attempt, and reports 0 examples.
    after
        Tasks, as (group, partition), that write rows which this one reads, and were under way when it was sent.
    written_by
        That of `after` which is the last writer of all rows that this one reads; None: there may be several, or one
        that was completed.
    follows
        Group and attempt of the partition's task before, which this node was sent, and which was under way when this
        one was sent: the task begins in the state that it leaves. None: the task before is completed.
    """

    partition: int
    attempt: int
    state: StateRef | None = None
    args: Any = None
    withdrawn: bool = False
    after: tuple[tuple[int, int], ...] = ()
    written_by: tuple[int, int] | None = None
    follows: tuple[int, int] | None = None


@dataclass(frozen=True)
class ReplicaSet:
    """Replicas of a complete round: its number, its common group, and (shard, address of its backup) of each."""

    number: int
    group: int
    at: tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class OpenShards:
    """Create these shards and serve them under `epoch`, which begins a new generation.

    Their values are the initial ones, those of `checkpoint`, or those of `replicas`.
    """

    node: str
    address: str
    config: JobConfig
    shards: tuple[int, ...]
    epoch: int
    checkpoint: Checkpoint | None = None
    replicas: ReplicaSet | None = None


@dataclass(frozen=True)
class TakeShards:
    """Take these shards over from their server, and serve them under `epoch` from then on.

    `served_under` is, for each of them, the epoch under which the server at `from_address` has it. The updates of the
    groups up to `committed` travel as one state, those of later groups block by block.
    """

    node: str
    address: str
    config: JobConfig
    from_address: str
    shards: tuple[int, ...]
    served_under: tuple[int, ...]
    epoch: int
    committed: int = 0


@dataclass(frozen=True)
class BackUp:
    """Copy the committed state of `group` of these shards, in the background, each to its backup.

    `last_complete` is the number of the last complete round: replicas of earlier rounds may be dropped. An empty
    address in `backups` means that there is none. `states` are states of partitions that this node has at that
    group, each with the address of its backup. The answer is `BackedUp` or `NotBackedUp`.
    """

    node: str
    address: str
    number: int
    last_complete: int
    group: int
    shards: tuple[int, ...]
    epochs: tuple[int, ...]
    backups: tuple[str, ...]
    states: tuple[tuple[StateRef, str], ...] = ()


@dataclass(frozen=True)
class StopBackUp:
    """Copy nothing more for the replication round `number`, which is broken off; there is no answer."""

    node: str
    address: str
    number: int


@dataclass(frozen=True)
class TakeStates:
    """Have these states sent as soon as the tasks under way leave them: this node is to run the tasks that follow."""

    node: str
    address: str
    states: tuple[StateRef, ...]


@dataclass(frozen=True)
class ShardOwner:
    """The server of a shard, and the epoch under which it serves it."""

    shard: int
    node: str
    address: str
    epoch: int


@dataclass(frozen=True)
class UpdateShardMap:
    """Use this map from now on. Work of an earlier `generation` is discarded: the job has rolled back."""

    node: str
    address: str
    version: int
    owners: tuple[ShardOwner, ...]
    generation: int


@dataclass(frozen=True)
class LoadPartitions:
    """Load these partitions, drop others that are not worked on, and report when all are loaded.

    A later request replaces an earlier one. `sources`: the address of a process that has a partition in memory, by
    partition; others are read from storage.
    """

    node: str
    address: str
    config: JobConfig
    request: int
    partitions: tuple[int, ...]
    sources: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True)
class Dispatch:
    """Run these tasks of one group.

    `completions` is the number of completions that must be visible; every update of the groups up to `committed`
    is on the servers, which may fold them. `read` is what the tasks see (see `psengine.drivers.interface.Task`): with
    "group" exactly the state of `committed`, which is the group before; with "rows" that of the group before, in the
    rows that they read, which may not be committed; with "parent" all that is there.

    `completed_by` is the attempt under which each of the partitions completed `committed`, if they all did under the
    same one and none has gone further, else 0. `goes_on`: the node may begin its next group before its instruction.

    `apart`: the servers get the update of each task by itself, since the group is not sealed: a task may be withdrawn
    when it is completed already.
    """

    node: str
    address: str
    batch: int
    group: int
    tasks: tuple[TaskKey, ...]
    completions: int
    committed: int
    map_version: int
    generation: int
    completed_by: int = 0
    goes_on: bool = False
    read: Read = "group"
    apart: bool = False


@dataclass(frozen=True)
class GatherModel:
    """Collect the shards, which must hold `n_updates` updates, and the states of partitions at `committed`.

    Then evaluate, and write the model.

    The answer is `ModelSaved`, `UpdatesMissing` or `SaveFailed`.
    """

    config: JobConfig
    committed: int
    owners: tuple[ShardOwner, ...]
    summary: dict[str, Any]
    n_updates: int
    states: tuple[StateRef, ...] = ()


@dataclass(frozen=True)
class SaveCheckpoint:
    """Collect the shards and the states of partitions at `committed` and save them.

    The answer is `CheckpointSaved` or `CheckpointFailed`. `n_updates`: the number of updates that the shards must hold.
    `from_replicas`: `owners` are the shards' backups, with the round in place of the epoch.
    """

    config: JobConfig
    committed: int
    owners: tuple[ShardOwner, ...]
    summary: dict[str, Any]
    n_updates: int
    from_replicas: bool = False
    states: tuple[StateRef, ...] = ()


@dataclass(frozen=True)
class Evaluate:
    """Collect what the shards marked at `group` and evaluate it beside the training; the answer is `Evaluated`.

    `clock`: the number of clocks that were complete then.
    """

    config: JobConfig
    group: int
    clock: int
    owners: tuple[ShardOwner, ...]
    generation: int
    states: tuple[StateRef, ...] = ()


@dataclass(frozen=True)
class RecallTasks:
    """Give the tasks of this group back that follow others and have not begun: others may be to run them.

    The answer is `BatchFailed` with `recalled`; a batch that has begun is completed.
    """

    node: str
    address: str
    group: int


NodeInstruction = (
    OpenShards
    | TakeShards
    | BackUp
    | StopBackUp
    | TakeStates
    | UpdateShardMap
    | LoadPartitions
    | Dispatch
    | RecallTasks
)
Instruction = NodeInstruction | GatherModel | SaveCheckpoint | Evaluate
