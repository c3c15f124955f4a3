"""Access of the controller's process to stores, clocks and the control plane, implemented by infra."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proteus_spot.psengine.config import JobConfig
from proteus_spot.psengine.protocol.checkpoint import Checkpoint, Checkpoints
from proteus_spot.psengine.shell.event_log_writer import KeepPage
from proteus_spot.psengine.tables.sharding import Arrays


def _installed(config: JobConfig) -> None:
    """Load no code: the application's module is installed on this machine."""


def _store_no_page(number: int, entries: Sequence[Mapping[str, Any]]) -> None:
    """Store no event log."""


@dataclasses.dataclass(frozen=True)
class BestModel:
    """The best model that was evaluated: its clock, the figures of the application, and the whole tables."""

    clock: int
    figures: dict[str, float | None]
    arrays: Arrays


def _keep_none(config: JobConfig, best: BestModel) -> None:
    """Store no model."""


def _find_none(config: JobConfig) -> BestModel | None:
    return None


def _loop_time_s() -> float:
    return asyncio.get_running_loop().time()


@dataclasses.dataclass(frozen=True)
class ControllerCallbacks:
    """Access of the shell to stores and clocks, implemented by infra.

    `read_heldout(data_url)` returns arrays, `save(config, arrays, result)` writes the model and then its manifest,
    `find_finished(config)` returns the result of an existing manifest or None. `save_checkpoint(config, clock, shards,
    summary, states, carried)` writes a checkpoint, reads it back and drops older ones: `states` are those of
    partitions, `carried` gives the earlier checkpoint that has the state of a partition which has not run since.
    `find_checkpoints(config)` returns the complete ones, and raises `JobError` if they are of another job.
    `load_code(config)` prepares the import of the application's module, and raises `JobError` if it is not the
    config's. `report_notice(about)` reports an eviction notice to the control plane. `keep_page(number, entries)`
    stores a page of the job's event log. `keep_best(config, best)` stores the best model so far in place of the one
    before, which `find_best(config)` returns. All of these block and run on threads. `wall_s()` returns the time of
    day, for display; `now_s()` returns the time of every event, monotonic and in seconds.
    """

    read_heldout: Callable[[str], Mapping[str, NDArray[np.generic]]]
    save: Callable[[JobConfig, Arrays, dict[str, Any]], None]
    find_finished: Callable[[JobConfig], dict[str, Any] | None]
    wall_s: Callable[[], float]
    report_notice: Callable[[Mapping[str, Any]], None]
    save_checkpoint: Callable[
        [JobConfig, int, Mapping[int, Arrays], Mapping[str, Any], Mapping[int, Arrays], Mapping[int, str]], Checkpoint
    ]
    find_checkpoints: Callable[[JobConfig], Checkpoints]
    load_code: Callable[[JobConfig], None] = _installed
    keep_page: KeepPage = _store_no_page
    now_s: Callable[[], float] = _loop_time_s
    keep_best: Callable[[JobConfig, BestModel], None] = _keep_none
    find_best: Callable[[JobConfig], BestModel | None] = _find_none
