"""What the controller tells of itself, as JSON-able dicts. Pure."""

from __future__ import annotations

from bisect import bisect_right
from operator import itemgetter
from typing import Any

from psengine.controller.state import ControllerState

_RECENT_CLOCKS = 20
#: clocks whose seconds a status tells one by one
RECENT_SHOWN = 60


def describe(controller: ControllerState, since_clock: int, now_s: float) -> dict[str, Any]:
    """Return the status.

    Parameters
    ----------
    since_clock : int
        `losses` holds the clocks after this one; a clock that never comes asks for none, and costs nothing.

    Returns
    -------
    dict
        `state`: starting, waiting, running, or one of the ends finished, stopped, failed; `reason` says why, for people.
        `shards`: who serves each, and who keeps its copy; `backup_clock`: the clock that the copies are of, None where
        there are none. `recent_seconds`: what the last clocks took; `metrics`: the newest evaluation, as [[clock, figures]];
        `bytes_moved` and `bytes_not_read` as in `traffic`. `went_back`: the clocks that all had to go back to, and why.
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
                "partitions": list(controller.members.placement.owned_by(node.name))
                if node.state in ("ready", "leaving")
                else [],
                "running": book.running_on(node.name) if book else 0,
                "threads": node.threads,
                "gone": node.gone,
                "error": node.error,
            }
            for node in controller.members.nodes.values()
        ],
        "stage": controller.stage,
        "shards": [
            {"shard": owner.shard, "node": owner.node, "keeper": None if keeper is None else keeper.node}
            for owner in controller.shards.owners
            for keeper in [controller.tiers.backups.keeper(owner.shard)]
        ],
        "backup_clock": controller.tiers.backups.clock,
        "went_back": _went_back(controller),
        "checkpoint_clock": controller.checkpoints.clock,
        "repeated_micro_tasks": book.repeated if book else 0,
        "lost_micro_tasks": controller.lost_micro_tasks,
        "notices": list(controller.members.notices),
        "micro_tasks_done": dict(progress.done_by_tier),
        "seconds_per_clock": sum(seconds) / len(seconds) if seconds else None,
        "recent_seconds": list(progress.clock_seconds[-RECENT_SHOWN:]),
        "metrics": controller.history.evaluating.series()[-1:],
        **controller.history.traffic.figures(),
        "result": controller.result,
    }


def _went_back(controller: ControllerState) -> list[dict[str, Any]]:
    return [{"clock": clock, "reason": reason} for clock, reason in controller.rollbacks]


def summary(controller: ControllerState, now_s: float, clock: int | None = None) -> dict[str, object]:
    """Return what the job had come to at `clock`, its common clock unless told otherwise.

    That is what checkpoints and the saved model's manifest hold of it.
    """
    config, book = controller.config, controller.book
    at = (book.common if book else 0) if clock is None else clock
    figures = controller.progress.figures(at, now_s)
    return {
        "job_id": config.job_id if config else None,
        "app": config.app if config else None,
        "clocks": at,
        "repeated_micro_tasks": book.repeated if book else 0,
        "went_back": _went_back(controller),
        "stopped": controller.stopping.stop_reason,
        **figures,
        **controller.history.figures(at, figures["seconds"]),
    }
