"""What the controller wants done. Orders, not calls: the shell carries them out, in order for each node.

Every order to a node names its `address`, so that one meant for a process that is gone never reaches its successor.
"""

from __future__ import annotations

from dataclasses import dataclass

from psengine.config import JobConfig
from psengine.protocol.checkpoint import Checkpoint


@dataclass(frozen=True)
class TaskKey:
    """One try at one micro-task: the work of one partition in one clock, and how often it was dispatched.

    `after` is the attempt that completed the partition's clock before, 0 where that is not known.
    """

    partition: int
    attempt: int
    after: int = 0


@dataclass(frozen=True)
class ReplicaSet:
    """The copies of a whole round of backups: its number, the common clock that they are of, and (shard, address of its keeper)."""

    number: int
    clock: int
    at: tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class OpenShards:
    """Create these shards and serve them under `epoch`, which begins a new generation.

    Their values are the initial ones, those of `checkpoint`, or those that were `kept`.
    """

    node: str
    address: str
    config: JobConfig
    shards: tuple[int, ...]
    epoch: int
    checkpoint: Checkpoint | None = None
    kept: ReplicaSet | None = None


@dataclass(frozen=True)
class TakeShards:
    """Take these shards over from the server that has them, and serve them under `epoch` from then on.

    `served_under` is, for each of them, the epoch under which the server at `from_address` has it. The effects of the clocks
    up to `committed` travel as one state; only those of later clocks do block by block.
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
    """Copy the committed state of `clock` of these shards, in the background, each to its keeper; answer with what became of it.

    `whole` is the number of the last whole round: what was copied before it may be dropped. An empty address of a keeper
    means that there is none. The answer is `BackedUp` or `NotBackedUp`.
    """

    node: str
    address: str
    number: int
    whole: int
    clock: int
    shards: tuple[int, ...]
    epochs: tuple[int, ...]
    keepers: tuple[str, ...]


@dataclass(frozen=True)
class ShardOwner:
    """Who serves a shard, and under which ownership number."""

    shard: int
    node: str
    address: str
    epoch: int


@dataclass(frozen=True)
class UpdateShardMap:
    """Use this map from now on. What was begun in an earlier `generation` is of no use any more: all have gone back."""

    node: str
    address: str
    version: int
    owners: tuple[ShardOwner, ...]
    generation: int


@dataclass(frozen=True)
class LoadPartitions:
    """Hold these partitions, and of others none that is not worked on; say so when all are there.

    A later request replaces an earlier one.
    """

    node: str
    address: str
    config: JobConfig
    request: int
    partitions: tuple[int, ...]


@dataclass(frozen=True)
class Dispatch:
    """Run these micro-tasks of one clock.

    `parent_clock` counts the completions that must be visible; every effect of the clocks up to `committed` is on the
    servers, and they may fold them.

    `completed_by` is the attempt under which each of the partitions completed `committed`, where they all did under the
    same one and none has gone further, else 0. `goes_on`: the node may begin its next clock ahead of the order for it.
    """

    node: str
    address: str
    batch: int
    clock: int
    tasks: tuple[TaskKey, ...]
    parent_clock: int
    committed: int
    map_version: int
    generation: int
    completed_by: int = 0
    goes_on: bool = False


@dataclass(frozen=True)
class GatherModel:
    """Collect the shards at `committed`, evaluate, write the model; answer with what has become of it.

    The answer is `ModelSaved`, `EffectsMissing` or `SaveFailed`.
    """

    config: JobConfig
    committed: int
    owners: tuple[ShardOwner, ...]
    summary: dict[str, object]


@dataclass(frozen=True)
class SaveCheckpoint:
    """Collect the shards at `committed` and write them down; answer with `CheckpointSaved` or `CheckpointFailed`.

    `from_keepers`: `owners` are those who keep the shards' copies, with the round in place of the epoch.
    """

    config: JobConfig
    committed: int
    owners: tuple[ShardOwner, ...]
    summary: dict[str, object]
    from_keepers: bool = False


@dataclass(frozen=True)
class Evaluate:
    """Collect what the shards marked at `clock` and evaluate it, beside the training; answer with `Evaluated`."""

    config: JobConfig
    clock: int
    owners: tuple[ShardOwner, ...]
    generation: int


NodeInstruction = OpenShards | TakeShards | BackUp | UpdateShardMap | LoadPartitions | Dispatch
Instruction = NodeInstruction | GatherModel | SaveCheckpoint | Evaluate
