"""A check of the controller's invariants after every event."""

from __future__ import annotations

from proteus_spot.psengine.controller.state import ControllerState


def check_invariants(controller: ControllerState) -> None:
    """Raise AssertionError when an invariant of `psengine.controller.controller` does not hold while the job trains."""
    config, tasks, members = controller.config, controller.tasks, controller.members
    if config is None or tasks is None or not controller.training:
        return
    ready = {node.name for node in members.in_state("ready", "leaving")}
    owners = members.placement.owner
    assert all(owner in ready for owner in owners if owner is not None)
    is_limited = config.max_partitions_per_node is not None
    assert not ready or all(
        owner is not None or is_limited or partition in members.withheld for partition, owner in enumerate(owners)
    )
    alive = {node.name for node in members.in_state("ready", "leaving", "unfit", "draining")}
    last_clock = controller.stopping.last_clock
    for partition, running in tasks.running.items():
        assert running.node in alive, f"partition {partition} runs on {running.node}, which was lost"
        early = running.task.read == "parent" or running.task.after is not None
        assert early or running.withdrawn or running.group == tasks.common + 1
        assert tasks.common < running.group <= tasks.sealed + 1
        assert last_clock is None or running.group <= last_clock
    for partition, following in tasks.following.items():
        before = tasks.running[partition]
        assert (following.node, following.task.read) == (before.node, before.task.read)
        assert before.task.read == "parent" or following.task.after is not None
        assert before.group < following.group <= tasks.sealed
        assert last_clock is None or following.group <= last_clock
    addresses = {node.address for node in members.nodes.values() if not node.gone}
    assert controller.gathering or not controller.shards.not_at(addresses), "a shard without a server"
    replicated = controller.tiers.backups.group
    assert replicated is None or replicated <= tasks.common, "the replicas are of a clock that is not common yet"
    assert [owner.shard for owner in controller.shards.owners] == list(range(config.n_shards)), "one owner each"
