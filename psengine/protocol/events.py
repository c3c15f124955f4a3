"""Events that the controller receives. Frozen; `now_s` of an event is in seconds on one monotonic clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from proteus_spot.psengine.config import JobConfig, Tier
from proteus_spot.psengine.protocol.checkpoint import Checkpoint
from proteus_spot.psengine.protocol.moved_state import StateRef
from proteus_spot.psengine.tables.row_sets import RowSet


@dataclass(frozen=True)
class TaskStats:
    """What a completed task says about itself: the sum of its examples' losses, and their number.

    `result` is what the partition returns to the driver: small and picklable.
    `has_state`: its partition has a state, which the node keeps under this attempt. `own_rows` are the rows of own
    tables in it, by table; None if the node has reported the same before.
    """

    partition: int
    attempt: int
    loss_sum: float
    examples: int
    kernel_s: float
    result: Any = None
    has_state: bool = False
    own_rows: Mapping[str, RowSet] | None = None


class Event:
    """Something that the controller hears. Its fields name the time last, behind what the event is about."""

    now_s: float


@dataclass(frozen=True)
class NodeEvent(Event):
    """What the process of a node says. `address` is unique to the process; a node that comes back has a new one."""

    node: str
    address: str


@dataclass(frozen=True)
class JobStarted(Event):
    """A client starts a job; a repeated request changes nothing. The job continues from `checkpoint`, if any.

    `older` are earlier checkpoints, the newest first; `damaged` is a line on newer ones that cannot be used.
    """

    config: JobConfig
    now_s: float
    checkpoint: Checkpoint | None = None
    older: tuple[Checkpoint, ...] = ()
    damaged: str = ""


@dataclass(frozen=True)
class NodeJoined(NodeEvent):
    """A node's process registered.

    `code_sha256` is the digest of the user's code that the process has, empty where it has none. `misfit` says why its
    program cannot work with this controller; it is empty where it can.
    """

    tier: Tier
    threads: int
    now_s: float
    code_sha256: str = ""
    misfit: str = ""


@dataclass(frozen=True)
class NodeReady(NodeEvent):
    """The node holds `partitions`; it had been asked for the set of `request`."""

    request: int
    partitions: tuple[int, ...]
    now_s: float


@dataclass(frozen=True)
class ShardsOpened(NodeEvent):
    """The node serves `shards` under `epoch`."""

    shards: tuple[int, ...]
    epoch: int
    now_s: float


@dataclass(frozen=True)
class ShardsNotOpened(NodeEvent):
    """The node could not load its copies of `shards` for `epoch`.

    `again`: another attempt may succeed, since a process or the store did not answer.
    """

    shards: tuple[int, ...]
    epoch: int
    error: str
    now_s: float
    again: bool = False


@dataclass(frozen=True)
class CheckpointDamaged(NodeEvent):
    """The node has read a file of the checkpoint `name` that is not what was written; no later attempt can succeed."""

    name: str
    error: str
    now_s: float


@dataclass(frozen=True)
class BackedUp(NodeEvent):
    """A server has copied `shards`, in the round `number`: it has a copy of its own, and so has their backup."""

    number: int
    shards: tuple[int, ...]
    now_s: float
    partitions: tuple[int, ...] = ()


@dataclass(frozen=True)
class NotBackedUp(NodeEvent):
    """A server could not copy its shards in the round `number`: it, or a backup, was not ready for it.

    `unreachable`: address of a backup that did not answer; empty where that is not why.
    """

    number: int
    error: str
    now_s: float
    unreachable: str = ""


@dataclass(frozen=True)
class ShardsTaken(NodeEvent):
    """The node has taken `shards` over, and serves them under `epoch`; the previous server forwards late messages."""

    shards: tuple[int, ...]
    epoch: int
    now_s: float


@dataclass(frozen=True)
class ShardsNotTaken(NodeEvent):
    """The node could not take `shards` over under `epoch`: the server that has them did not answer, or refused."""

    shards: tuple[int, ...]
    epoch: int
    error: str
    now_s: float


@dataclass(frozen=True)
class StatesTaken(NodeEvent):
    """The node has received these states of partitions from other nodes, each for an attempt at a task (`attempts`)."""

    states: tuple[StateRef, ...]
    attempts: tuple[int, ...]
    now_s: float


@dataclass(frozen=True)
class BatchDone(NodeEvent):
    """Tasks of one group completed on a node, their updates flushed to every server before this was sent.

    `batch`: number of its instruction.
    """

    group: int
    results: tuple[TaskStats, ...]
    now_s: float
    batch: int = 0


@dataclass(frozen=True)
class UsageMeasured(Event):
    """The process at `address` has `moved` bytes since it began, and holds `memory`, both by kind.

    See `byte_counts` and `memory_use`; an empty `memory` was not measured.
    """

    address: str
    moved: Mapping[str, int]
    memory: Mapping[str, int]
    now_s: float


@dataclass(frozen=True)
class Evaluated(Event):
    """The model of `group` was evaluated, as ordered in `generation`; `metrics` by name, None where it could not be."""

    group: int
    generation: int
    metrics: Mapping[str, float | None] | None
    now_s: float


@dataclass(frozen=True)
class BatchFailed(NodeEvent):
    """Tasks of one group that a node could not do.

    `fatal`: doing them again elsewhere is useless (the application raised). `unreachable` is the address of the server
    that did not answer, if that was the reason. `recalled`: the controller has asked for them (`RecallTasks`).
    """

    group: int
    tasks: tuple[tuple[int, int], ...]
    error: str
    fatal: bool
    now_s: float
    unreachable: str = ""
    recalled: bool = False


@dataclass(frozen=True)
class NodeFailed(NodeEvent):
    """The application raised on a node, outside a task: doing it elsewhere is useless."""

    error: str
    now_s: float


@dataclass(frozen=True)
class NodeUnfit(NodeEvent):
    """A node cannot load, after some tries: a partition cannot be read, or the application cannot be made there.

    Others may be able to. `again`: so may this node, later: the store may be away.
    """

    error: str
    now_s: float
    again: bool = False


@dataclass(frozen=True)
class NoticeReceived(Event):
    """The market takes `node` in `seconds_left`; `about` is what the control plane wants to know of it."""

    node: str
    seconds_left: float
    now_s: float
    about: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class DrainRequested(Event):
    """Nodes are to be let go, all of them by `deadline_s` seconds from now."""

    nodes: tuple[str, ...]
    deadline_s: float
    now_s: float


@dataclass(frozen=True)
class NodesLost(Event):
    """Processes are gone at one time: `reasons` by address, whatever they are."""

    reasons: Mapping[str, str]
    now_s: float


@dataclass(frozen=True)
class TimerFired(Event):
    """Some time has passed; deadlines are looked at."""

    now_s: float


@dataclass(frozen=True)
class StopRequested(Event):
    """The job is to end at the clock that is under way."""

    reason: str
    now_s: float


@dataclass(frozen=True)
class HoldRequested(Event):
    """No clock after `clock` is to begin, until the next such event; None: no limit. A stop overrules it."""

    clock: int | None
    now_s: float


@dataclass(frozen=True)
class ModelSaved(Event):
    """The model of the committed clock is in the blob store, whole: no update is missing from it."""

    result: dict[str, object]
    now_s: float


@dataclass(frozen=True)
class UpdatesMissing(Event):
    """The shards lack updates of the clock at which they were gathered; nothing was saved."""

    lost: int
    now_s: float


@dataclass(frozen=True)
class SaveFailed(Event):
    """The model could not be gathered or written. `fatal`: trying again is useless (the application raised)."""

    error: str
    fatal: bool
    now_s: float


@dataclass(frozen=True)
class CheckpointRequested(Event):
    """A client requests a checkpoint of the committed clock."""

    now_s: float


@dataclass(frozen=True)
class CheckpointSaved(Event):
    """A checkpoint is in the blob store, whole."""

    checkpoint: Checkpoint
    now_s: float


@dataclass(frozen=True)
class CheckpointFailed(Event):
    """The committed state could not be gathered or written; the next try comes by itself."""

    error: str
    now_s: float


@dataclass(frozen=True)
class JobFoundFinished(Event):
    """The blob store already holds the model that this job left: nothing is to be trained."""

    config: JobConfig
    result: dict[str, object]
    losses: tuple[tuple[int, float], ...]
    lost_micro_tasks: int
    now_s: float
