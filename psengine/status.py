"""What the controller tells of itself, as a JSON-able dict. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from psengine.controller import Controller

_RECENT_CLOCKS = 20


def describe(controller: Controller, since_clock: int, now_s: float) -> dict[str, Any]:
    """Return the status; `losses` holds the clocks after `since_clock` only."""
    config, book = controller.config, controller.book
    seconds = controller.clock_seconds[-_RECENT_CLOCKS:]
    started = controller.started_s
    return {
        "job_id": config.job_id if config else None,
        "state": controller.state,
        "reason": controller.reason,
        "clock": controller.losses[-1][0] if controller.losses else 0,
        "clocks": config.clocks if config else None,
        "elapsed_s": None if started is None else now_s - started,
        "losses": [(clock, loss) for clock, loss in controller.losses if clock > since_clock],
        "nodes": [
            {
                "name": node.name,
                "tier": node.tier,
                "address": node.address,
                "state": node.state,
                "partitions": list(controller.placement.owned_by(node.name)) if node.state == "ready" else [],
                "running": book.running_on(node.name) if book else 0,
                "threads": node.threads,
                "gone": node.gone,
            }
            for node in controller.nodes.values()
        ],
        "stage": controller.stage,
        "repeated_micro_tasks": book.repeated if book else 0,
        "lost_micro_tasks": controller.lost_micro_tasks,
        "notices": list(controller.notices),
        "micro_tasks_done": dict(controller.done_by_tier),
        "seconds_per_clock": sum(seconds) / len(seconds) if seconds else None,
        "result": controller.result,
    }
