"""Saving of committed states: the model at the end, checkpoints, and the evaluation of clocks during the training.

Shards and partitions' states are gathered on the controller's event loop; user code, copies of whole tables and the
stores run on threads.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from proteus_spot.psengine.apps.registry import resolve
from proteus_spot.psengine.config import JobConfig
from proteus_spot.psengine.controller.history import History
from proteus_spot.psengine.protocol import events
from proteus_spot.psengine.protocol.instructions import Evaluate, GatherModel, SaveCheckpoint, ShardOwner
from proteus_spot.psengine.protocol.moved_state import StateRef
from proteus_spot.psengine.rpc.cancellation import on_thread
from proteus_spot.psengine.rpc.transport import Transfers
from proteus_spot.psengine.scheduling.task_table import lost_updates
from proteus_spot.psengine.shell.callbacks import BestModel, ControllerCallbacks
from proteus_spot.psengine.shell.evaluator import ApplicationRaised, Evaluator, own_states, sharding_of, whole_tables
from proteus_spot.psengine.shell.gathering import GoneOn, NoModel, from_replicas, from_servers, states_at
from proteus_spot.psengine.tables.sharding import Arrays
from proteus_spot.psengine.telemetry.byte_counts import CONTROLLER, link, sent_bytes
from proteus_spot.psengine.telemetry.formatting import format_error

logger = logging.getLogger(__name__)

#: Maximum seconds that a gathered checkpoint waits for evaluations of earlier clocks.
_EVALUATION_TIMEOUT_S = 10.0
#: The figure by which models are compared; the lowest is the best.
_FIGURE = "loss"


class BestKeeper:
    """Keeps the best of the models that were evaluated, where an application keeps it in place of the last one.

    The store has it, so that it survives the controller. A clock that is repeated has the same bits, so a job that goes
    back leaves it as it is.
    """

    def __init__(self, callbacks: ControllerCallbacks) -> None:
        self._callbacks = callbacks
        #: The lowest loss that the store has; None: not read yet.
        self._lowest: float | None = None

    async def consider(
        self, config: JobConfig, clock: int, figures: Mapping[str, float | None], arrays: Arrays
    ) -> None:
        """Keep a model if it is the best."""
        if not await on_thread(keeps_best, config):
            return
        if self._lowest is None:
            best = await on_thread(self._callbacks.find_best, config)
            self._lowest = math.inf if best is None else _loss_of(best.figures)
        if _loss_of(figures) < self._lowest:
            await on_thread(self._callbacks.keep_best, config, BestModel(clock, dict(figures), arrays))
            self._lowest = _loss_of(figures)

    async def better(self, config: JobConfig, figures: Mapping[str, float | None]) -> BestModel | None:
        """Return the kept model if it is better than the last one, of which `figures` are.

        Raises
        ------
        ApplicationRaised
            If there is no figure to compare.
        """
        if not await on_thread(keeps_best, config):
            return None
        if _FIGURE not in figures:
            raise ApplicationRaised(f"{config.app}: keep is 'best', and evaluate returns no figure {_FIGURE!r}")
        best: BestModel | None = await on_thread(self._callbacks.find_best, config)
        return best if best is not None and _loss_of(best.figures) < _loss_of(figures) else None


def keeps_best(config: JobConfig) -> bool:
    """Return whether the application of a job keeps its best model. It runs the user's code: call it on a thread."""
    return bool(getattr(resolve(config.app, config.app_params), "keeps_best", False))


def _loss_of(figures: Mapping[str, float | None]) -> float:
    loss = figures.get(_FIGURE)
    return math.inf if loss is None else loss


class StateSaver:
    """Gathers, evaluates and saves the states of one job, and reports the outcome.

    Parameters
    ----------
    history : History
        The figures of the job, which are saved with its states.
    report : callable
        Passes an event to the controller.

    Attributes
    ----------
    checkpoint_error : str
        Error of the last checkpoint; empty if it succeeded.
    too_late : bool
        Whether it failed because its clock was not available any more.
    """

    def __init__(
        self,
        transfers: Transfers,
        callbacks: ControllerCallbacks,
        history: History,
        report: Callable[[events.Event], None],
    ) -> None:
        self._transfers, self._callbacks, self._history, self._report = transfers, callbacks, history, report
        self._now = callbacks.now_s
        self.checkpoint_error = ""
        self.too_late = False
        #: Set and replaced whenever a checkpoint was written, or failed.
        self._checkpoint_ended = asyncio.Event()
        self._evaluator = Evaluator(transfers, callbacks.read_heldout, partial(self._count, "evaluate"))
        self._best = BestKeeper(callbacks)
        #: {task of an evaluation: its group}.
        self._evaluations: dict[asyncio.Task[None], int] = {}
        #: Bytes gathered by kind, since the beginning.
        self._moved: Counter[str] = Counter()

    async def save_model(self, instruction: GatherModel) -> None:
        """Save the model of the last clock, with its evaluation."""
        try:
            event: events.Event = await self._save_model(instruction)
        except NoModel as error:
            event = events.SaveFailed(str(error), True, self._now())
        except ApplicationRaised as error:
            logger.exception("the application failed")
            event = events.SaveFailed(str(error), True, self._now())
        except Exception as error:
            # For example a slow node, or a store outage: the shards are still served, and the controller retries.
            logger.exception("saving failed")
            event = events.SaveFailed(format_error(error), False, self._now())
        self._report(event)

    async def _save_model(self, instruction: GatherModel) -> events.ModelSaved | events.UpdatesMissing:
        config, committed = instruction.config, instruction.committed
        sharding = await on_thread(sharding_of, config)
        shards, folded = await from_servers(self._transfers, sharding, instruction.owners, committed)
        if lost := lost_updates(folded, instruction.n_updates):
            return events.UpdatesMissing(lost, self._now())  # nothing is written: a manifest means that the job is done
        states = await own_states(self._transfers, config, instruction.states)
        await self._count("model", shards, instruction.owners, states, instruction.states)
        arrays = await on_thread(whole_tables, config, shards, states)
        figures = await self._evaluator.evaluate_tables(config, arrays)
        await asyncio.gather(*self._evaluations, return_exceptions=True)  # so that the series is complete
        history, clock = self._history, instruction.summary["clocks"]  # the driver may count several groups as one
        result: dict[str, Any] = {**instruction.summary, **history.traffic.figures(), "lost_micro_tasks": lost}
        result["bytes_by_link"] = history.traffic.links()
        result["metrics_by_clock"] = [*history.evaluating.series(clock - 1), [clock, figures]]
        if best := await self._best.better(config, figures):
            arrays, figures, result["kept_clock"] = best.arrays, best.figures, best.clock
        result["metrics"] = figures
        for name, value in figures.items():
            result.setdefault(name, value)  # an application's figures never replace the engine's
        await on_thread(self._callbacks.save, config, arrays, result)
        return events.ModelSaved(result, self._now())

    def add_evaluation(self, task: asyncio.Task[None], group: int) -> None:
        """Note the task that evaluates a group."""
        self._evaluations[task] = group
        task.add_done_callback(self._evaluations.pop)

    async def evaluate(self, instruction: Evaluate) -> None:
        """Evaluate a clock beside the training."""
        found = await self._evaluator.evaluate(instruction)
        metrics = None
        if found is not None:
            metrics, arrays = found
            await self._keep_if_best(instruction, metrics, arrays)
        self._report(events.Evaluated(instruction.group, instruction.generation, metrics, self._now()))

    async def _keep_if_best(self, instruction: Evaluate, metrics: Mapping[str, float | None], arrays: Arrays) -> None:
        try:
            await self._best.consider(instruction.config, instruction.clock, metrics, arrays)
        except Exception as error:  # noqa: BLE001 - a store outage: a later evaluation may keep a better one
            logger.warning("the model of clock %d was not kept: %s", instruction.clock, format_error(error))

    async def _metrics(self, instruction: SaveCheckpoint) -> list[list[Any]]:
        """Return the figures of the clocks of a checkpoint, also those under way: a resumed job cannot repeat them."""
        if under_way := [task for task, group in self._evaluations.items() if group <= instruction.committed]:
            await asyncio.wait(under_way, timeout=_EVALUATION_TIMEOUT_S)
        return self._history.evaluating.series(instruction.summary["clocks"])

    async def checkpoint_ended(self) -> None:
        """Wait until the checkpoint under way was written, or failed."""
        await self._checkpoint_ended.wait()

    async def save_checkpoint(self, instruction: SaveCheckpoint) -> None:
        """Write a checkpoint while the training goes on."""
        config, committed = instruction.config, instruction.committed
        try:
            collect = from_replicas if instruction.from_replicas else from_servers
            sharding = await on_thread(sharding_of, config)
            shards, folded = await collect(self._transfers, sharding, instruction.owners, committed)
            if lost := lost_updates(folded, instruction.n_updates):
                raise RuntimeError(f"{lost} update(s) are missing from the shards")
            states = await states_at(self._transfers, instruction.states)
            carried = {ref.partition: ref.checkpoint for ref in instruction.states if ref.checkpoint}
            await self._count("checkpoint", shards, instruction.owners, states, instruction.states)
            summary = {**instruction.summary, "metrics_by_clock": await self._metrics(instruction)}
            saved = await on_thread(
                self._callbacks.save_checkpoint, config, committed, shards, summary, states, carried
            )
        except Exception as error:
            # For example a server that has gone on, or a store outage: the next checkpoint follows automatically.
            logger.exception("the checkpoint of clock %d failed", committed)
            self.checkpoint_error, self.too_late = format_error(error), isinstance(error, GoneOn)
            self._report(events.CheckpointFailed(self.checkpoint_error, self._now()))
        else:
            self.checkpoint_error, self.too_late = "", False
            self._report(events.CheckpointSaved(saved, self._now()))
        self._checkpoint_ended.set()
        self._checkpoint_ended = asyncio.Event()

    async def _count(
        self,
        kind: str,
        shards: Mapping[int, Arrays],
        owners: Iterable[ShardOwner],
        states: Mapping[int, Arrays],
        refs: Iterable[StateRef],
    ) -> None:
        """Count gathered bytes; all come over the network, since the controller serves nothing."""
        gathered = [(owner.address, shards[owner.shard]) for owner in owners if owner.shard in shards]
        gathered += [(ref.address, states[ref.partition]) for ref in refs if ref.partition in states]

        def measure() -> list[tuple[str, int]]:
            return [(address, sent_bytes([arrays])) for address, arrays in gathered]

        for address, n_bytes in await on_thread(measure):
            self._moved[kind] += n_bytes
            self._moved[link(address)] += n_bytes
        self._report(events.UsageMeasured(CONTROLLER, dict(self._moved), {}, self._now()))
