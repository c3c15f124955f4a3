"""The status and the summary of a job as JSON-able dicts."""

from __future__ import annotations

from bisect import bisect_right
from operator import itemgetter
from typing import Any

from proteus_spot.psengine.controller.state import ControllerState
from proteus_spot.psengine.telemetry.event_log import MemoryUsed, NodeReleased

_RECENT_CLOCKS = 20
#: Number of recent clocks whose seconds a status lists.
RECENT_SHOWN = 60


def describe(job: ControllerState, since_clock: int, now_s: float) -> dict[str, Any]:
    """Return the status.

    Parameters
    ----------
    since_clock : int
        `losses` holds the clocks after this one; a clock beyond the last requests none.

    Returns
    -------
    dict
        `state`: starting, waiting, running, or one of the ends finished, stopped, failed; `reason` explains it in a
        sentence. `clock` and `clocks`: the last complete clock, and the last one of the job; a driver may count all
        clocks (see `Driver`). `passes_done`: passes over the data, None if the driver does not say what one is;
        `passes`: how many end the job, or None. `shards`: server and backup of each (key `backup`);
        `backup_clock`: clock of the replicas, None without any. `recent_seconds`: seconds of the last clocks;
        `metrics`: the newest evaluation, as [[clock, figures]]; `bytes_moved` and `bytes_not_read` as in `byte_counts`.
        `went_back`: clock and reason of every rollback.
        `damage`: a line on the last checkpoint that could not be used. `nodes`: state as in
        `membership`, with `error` if a node is quarantined, `memory` by kind, and whether it is `offered` for release.
        `work`: tasks, examples and kernel seconds of each node, also of those that are gone.
        `machines`: number of transient nodes that the job has a use for, None without a limit. `memory`: [[clock, bytes
        of tables, of states, of input, number of nodes]] of the last clock. `driver_figures` and `remarks` are the
        driver's own. `result`: None until the end and for a
        failed job, else the summary of what was saved; its `stopped` is the reason of a stop, or None. A job that was
        stopped before its shards were open has `clocks` 0 there, and left no model.
    """
    config, tasks, progress, driver = job.config, job.tasks, job.progress, job.driver
    seconds = progress.clock_seconds[-_RECENT_CLOCKS:]
    losses = progress.losses
    owned = job.members.placement.by_owner
    backup_group = job.tiers.backups.group
    return {
        "job_id": config.job_id if config else None,
        "state": job.state,
        "reason": job.reason,
        "clock": losses[-1][0] if losses else 0,
        "clocks": driver.clocks if driver is not None and driver.counts_clocks else job.stopping.target,
        "passes_done": _passes(job, tasks.common if tasks else 0, progress.examples),
        "passes": config.passes if config else None,
        "elapsed_s": None if progress.started_s is None else progress.seconds(now_s),
        "losses": losses[bisect_right(losses, since_clock, key=itemgetter(0)) :],
        "nodes": [
            {
                "name": node.name,
                "tier": node.tier,
                "address": node.address,
                "state": node.state,
                "partitions": list(owned.get(node.name, ())) if node.state in ("ready", "leaving") else [],
                "running": tasks.running_on(node.name) if tasks else 0,
                "threads": node.threads,
                "gone": node.gone,
                "error": node.error,
                "memory": dict(node.memory),
                "offered": node.state == "ready" and node.name in job.scale_in.offered,
            }
            for node in job.members.nodes.values()
        ],
        "stage": job.stage,
        "machines": job.scale_in.machines,
        "memory": [event.record() for event in job.history.log.of(MemoryUsed)[-1:]],
        "shards": [
            {"shard": owner.shard, "node": owner.node, "backup": None if backup is None else backup.node}
            for owner in job.shards.owners
            for backup in [job.tiers.backups.backup(owner.shard)]
        ],
        "backup_clock": None if backup_group is None else progress.clock_at(backup_group),
        "went_back": _went_back(job),
        "damage": job.damage,
        "checkpoint_clock": progress.clock_at(job.checkpoints.group),
        "repeated_micro_tasks": tasks.repeated if tasks else 0,
        "lost_micro_tasks": job.lost_micro_tasks,
        "notices": list(job.members.notices),
        "releases": [event.record() for event in job.history.log.of(NodeReleased)],
        "micro_tasks_done": dict(progress.done_by_tier),
        "work": {name: list(done) for name, done in progress.work_by_node.items()},
        "seconds_per_clock": sum(seconds) / len(seconds) if seconds else None,
        "recent_seconds": list(progress.clock_seconds[-RECENT_SHOWN:]),
        "metrics": job.history.evaluating.series()[-1:],
        "driver_figures": driver.figures() if driver is not None else {},
        "remarks": list(driver.remarks) if driver is not None else [],
        **job.history.traffic.figures(),
        "result": job.result,
    }


def _passes(job: ControllerState, group: int, examples: int) -> float | None:
    return None if job.driver is None else job.driver.passes(group, examples)


def _went_back(job: ControllerState) -> list[dict[str, Any]]:
    return [{"clock": clock, "reason": reason} for clock, reason in job.rollbacks]


def summary(job: ControllerState, now_s: float, group: int | None = None) -> dict[str, object]:
    """Return the summary of the job at a group (default: the last one), as checkpoints and manifests store it."""
    config, tasks, driver = job.config, job.tasks, job.driver
    at = (tasks.common if tasks else 0) if group is None else group
    clock = job.progress.clock_at(at)
    figures = job.progress.figures(at, now_s)
    return {
        "job_id": config.job_id if config else None,
        "app": config.app if config else None,
        "clocks": clock,
        "passes": _passes(job, at, figures["examples_done"]),
        "repeated_micro_tasks": tasks.repeated if tasks else 0,
        "went_back": _went_back(job),
        "stopped": job.stopping.stop_reason,
        **({"converged": job.stopping.criterion} if job.stopping.criterion else {}),
        **figures,
        **({"driver_figures": of_driver} if driver is not None and (of_driver := driver.figures()) else {}),
        **({"remarks": list(driver.remarks)} if driver is not None and driver.remarks else {}),
        **job.history.figures(clock, figures["seconds"]),
    }
