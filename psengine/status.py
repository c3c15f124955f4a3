"""What the controller tells of itself, as JSON-able dicts. Pure."""

from __future__ import annotations

from bisect import bisect_right
from operator import itemgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from psengine.controller import Controller

_RECENT_CLOCKS = 20


def describe(controller: Controller, since_clock: int, now_s: float) -> dict[str, Any]:
    """Return the status.

    Parameters
    ----------
    since_clock : int
        `losses` holds the clocks after this one; a clock that never comes asks for none, and costs nothing.

    Returns
    -------
    dict
        `state`: starting, waiting, running, or one of the ends finished, stopped, failed; `reason` says why, for people.
        `nodes`: state as in `membership`, with `error` where a node is unfit. `result` is None until the end, and of a
        failed job. It then says what was saved; its `stopped` is the reason of a stop, else None. A job that was
        stopped before its shards were open has `clocks` 0 there, and left no model.
    """
    config, book, progress = controller.config, controller.book, controller.progress
    seconds = progress.clock_seconds[-_RECENT_CLOCKS:]
    losses = progress.losses
    return {
        "job_id": config.job_id if config else None,
        "state": controller.state,
        "reason": controller.reason,
        "clock": losses[-1][0] if losses else 0,
        "clocks": config.clocks if config else None,
        "elapsed_s": None if progress.started_s is None else progress.seconds(now_s),
        "losses": losses[bisect_right(losses, since_clock, key=itemgetter(0)) :],
        "nodes": [
            {
                "name": node.name,
                "tier": node.tier,
                "address": node.address,
                "state": node.state,
                "partitions": list(controller.members.placement.owned_by(node.name)) if node.state == "ready" else [],
                "running": book.running_on(node.name) if book else 0,
                "threads": node.threads,
                "gone": node.gone,
                "error": node.error,
            }
            for node in controller.members.nodes.values()
        ],
        "stage": controller.stage,
        "checkpoint_clock": controller.checkpoints.clock,
        "repeated_micro_tasks": book.repeated if book else 0,
        "lost_micro_tasks": controller.lost_micro_tasks,
        "notices": list(controller.members.notices),
        "micro_tasks_done": dict(progress.done_by_tier),
        "seconds_per_clock": sum(seconds) / len(seconds) if seconds else None,
        "result": controller.result,
    }


def summary(controller: Controller, now_s: float) -> dict[str, object]:
    """Return what the job has come to at its common clock, as checkpoints and the saved model's manifest hold it."""
    config, book, progress = controller.config, controller.book, controller.progress
    return {
        "job_id": config.job_id if config else None,
        "app": config.app if config else None,
        "clocks": book.common if book else 0,
        "seconds": progress.seconds(now_s),
        "kernel_seconds": progress.kernel_seconds,
        "losses": [list(pair) for pair in progress.losses],
        "seconds_by_clock": list(progress.clock_seconds),
        "stage_by_clock": list(progress.clock_stages),
        "repeated_micro_tasks": book.repeated if book else 0,
        "micro_tasks_done": dict(progress.done_by_tier),
        "stopped": controller.limits.stop_reason,
    }
