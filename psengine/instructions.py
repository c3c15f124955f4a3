"""What the controller wants done. Orders, not calls: the shell carries them out, in order for each node.

Every order to a node names its `address`, so that one meant for a process that is gone never reaches its successor.
"""

from __future__ import annotations

from dataclasses import dataclass

from psengine.checkpointing import Checkpoint
from psengine.model import JobConfig, TaskKey


@dataclass(frozen=True)
class OpenShards:
    """Create these shards, with their initial values or those of `checkpoint`, and serve them under `epoch`."""

    node: str
    address: str
    config: JobConfig
    shards: tuple[int, ...]
    epoch: int
    checkpoint: Checkpoint | None = None


@dataclass(frozen=True)
class TakeShards:
    """Take these shards over from the server that has them, and serve them under `epoch` from then on.

    `served_under` is, for each of them, the epoch under which the server at `from_address` has it.
    """

    node: str
    address: str
    config: JobConfig
    from_address: str
    shards: tuple[int, ...]
    served_under: tuple[int, ...]
    epoch: int


@dataclass(frozen=True)
class ShardOwner:
    """Who serves a shard, and under which ownership number."""

    shard: int
    node: str
    address: str
    epoch: int


@dataclass(frozen=True)
class UpdateShardMap:
    """Use this map from now on."""

    node: str
    address: str
    version: int
    owners: tuple[ShardOwner, ...]


@dataclass(frozen=True)
class LoadPartitions:
    """Hold at least these partitions; say so when all are there. A later request replaces an earlier one."""

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
    """

    node: str
    address: str
    batch: int
    clock: int
    tasks: tuple[TaskKey, ...]
    parent_clock: int
    committed: int
    map_version: int


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
    """Collect the shards at `committed` and write them down; answer with `CheckpointSaved` or `CheckpointFailed`."""

    config: JobConfig
    committed: int
    owners: tuple[ShardOwner, ...]
    summary: dict[str, object]


Instruction = OpenShards | TakeShards | UpdateShardMap | LoadPartitions | Dispatch | GatherModel | SaveCheckpoint
NodeInstruction = OpenShards | TakeShards | UpdateShardMap | LoadPartitions | Dispatch
