"""Who is to serve and to keep what, in each stage."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proteus_spot.psengine.config import JobConfig, JobError, Stage
from proteus_spot.psengine.tiers.layout import Layout, active_servers, half_of, layout_for
from tests.support.instant_cluster import InstantCluster

NAMES = [f"n{i}" for i in range(12)]
STAGES: tuple[Stage, ...] = (1, 2, 3)


def test_half_of_the_transient_nodes_serve_the_longest_running_first_and_those_that_serve_stay() -> None:
    nodes = ["a", "b", "c", "d", "e"]
    assert active_servers(nodes, (), 8, 3) == ["a", "b", "c"]
    assert active_servers(nodes, ("d", "e"), 8, 3) == ["a", "d", "e"]
    assert active_servers(nodes, (), 2, 3) == ["a", "b"], "no more of them than shards"
    assert active_servers(["a"], (), 8, 1) == ["a"]


def test_the_next_server_is_the_longest_running_node_without_shards() -> None:
    now = Layout(2, ("b", "b", "b", "c", "c", "c"), ("r",) * 6)
    assert layout_for(2, ["r"], ["a", "b", "c", "d", "e", "f"], now, 3) == Layout(
        2, ("b", "b", "a", "c", "c", "a"), ("r",) * 6
    )


def test_without_transient_nodes_the_backups_serve() -> None:
    now = Layout(2, ("t", "t", "t", "t"), ("s", "r", "r", "s"))
    assert layout_for(1, ["r", "s"], [], now, 0) == Layout(1, ("s", "r", "r", "s"), ("r", "s", "s", "r"))
    assert layout_for(1, ["r"], [], now, 0) == Layout(1, ("r",) * 4, ("r",) * 4), "nobody else can"
    assert layout_for(2, ["r"], [], now, 0) is None


def test_a_change_says_what_it_is() -> None:
    before = Layout(1, ("r", "r", "r", "r"), ("r", "r", "r", "r"))
    after = Layout(2, ("a", "a", "b", "r"), ("r", "r", "r", None))
    assert before.lines() == [
        "stage 1: 1 server(s), 1 backup(s)",
        "shards 0-3: server r",
        "shards 0-3: backup r",
    ]
    assert after.lines(before) == [
        "stage 1 -> 2: 3 server(s), 1 backup(s)",
        "shards 0-1: server a, was r",
        "shard 2: server b, was r",
        "shard 3: backup none, was r",
    ]


@given(
    stage=st.sampled_from(STAGES),
    reliable=st.lists(st.sampled_from(NAMES[:3]), unique=True),
    transient=st.lists(st.sampled_from(NAMES[3:]), unique=True),
    owners=st.lists(st.sampled_from(NAMES), min_size=1, max_size=9),
    backups=st.lists(st.sampled_from([*NAMES[:3], None]), min_size=9, max_size=9),
)
def test_every_shard_has_a_server_that_may_serve_in_even_shares_and_staying_is_for_ever(
    stage: Stage, reliable: list[str], transient: list[str], owners: list[str], backups: list[str | None]
) -> None:
    now = Layout(stage, tuple(owners), tuple(backups[: len(owners)]))
    wanted = layout_for(stage, reliable, transient, now, half_of(len(transient)))
    pool = reliable if stage == 1 else transient
    if not pool:
        assert wanted is None
        return
    assert wanted is not None
    assert set(wanted.owners) <= set(pool)
    loads = [wanted.owners.count(name) for name in set(wanted.owners)]
    assert max(loads) - min(loads) <= 1
    if stage == 1 and len(reliable) > 1:
        assert all(owner != backup for owner, backup in zip(wanted.owners, wanted.backups, strict=True))
        for server in reliable:
            kept = [backup for owner, backup in zip(wanted.owners, wanted.backups, strict=True) if owner == server]
            counts = [kept.count(name) for name in reliable if name != server]
            assert max(counts) - min(counts) <= 1, "what one server had is spread over all others"
    if stage > 1:
        assert len(loads) == min(len(owners), (len(transient) + 1) // 2)
        assert set(wanted.backups) <= ({*reliable} or {None})
    assert layout_for(stage, reliable, transient, wanted, half_of(len(transient))) == wanted, "nobody moves for nothing"


@pytest.mark.parametrize(("servers", "serving"), [(None, 6), (2, 2)])
def test_half_of_the_transient_nodes_serve_or_as_many_as_the_job_fixes(servers: int | None, serving: int) -> None:
    config = JobConfig(
        "job", n_partitions=24, n_shards=12, n_reliable=2, clocks=99, stage=2, start_patience_s=0.0, servers=servers
    )
    cluster = InstantCluster(config, transient=12)
    for _ in range(8):  # the shards leave the reliable nodes
        cluster.do_clock(1.0)
    assert len({owner.node for owner in cluster.controller.job.shards.owners}) == serving
    assert not cluster.controller.job.rollbacks


def test_no_servers_are_refused() -> None:
    config = JobConfig("job", clocks=1, servers=2).to_dict()
    assert JobConfig.from_dict(config).servers == 2
    with pytest.raises(JobError, match="servers is 0: it must be at least 1"):
        JobConfig.from_dict({**config, "servers": 0})
