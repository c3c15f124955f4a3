"""SIGKILL, or notice, at the worst moment of a hand-over, a replication or a recovery: the model is undisturbed.

The same as tests/psengine/whole_engine/test_moments.py, on real processes instead of virtual time, at the moments when
one process has a state that its peer does not have.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from tests.support.kill_at_moment import Moment
from tests.support.local_cluster import LocalCluster, digits_job
from tests.support.tiers import CLOCKS, active, node, run, servers, whole

pytestmark = [pytest.mark.e2e]

#: What happens to a server for the call to be made; copies are made without.
BEGUN_BY = {"proteus_hand_over": "told to go", "proteus_store_backup": "", "proteus_backups": "killed"}
#: The moment of a call, and who dies at it: whoever has been answered, whoever has done it, or the controller
#: meanwhile.
WORST: list[tuple[Moment, str | None]] = [("answered", None), ("done", None), ("done", "controller")]
#: the server that has handed over here; the others in `make storms`
CASES = [
    pytest.param(
        *(op, moment, victim),
        marks=[] if (op, moment, victim) == ("proteus_hand_over", "done", None) else pytest.mark.storm,
    )
    for op, (moment, victim) in product(BEGUN_BY, WORST)
]


def tell(cluster: LocalCluster, name: str) -> None:
    """Give a node notice, and have it go at once: it could work on for most of that time."""
    cluster.client.notice(name, 30.0)
    cluster.client.drain([name], 30.0)


@pytest.mark.parametrize(("op", "moment", "victim"), CASES)
def test_who_is_killed_at_the_worst_moment_takes_nothing_along(
    tmp_path: Path, undisturbed: bytes, op: str, moment: Moment, victim: str | None
) -> None:
    """Two reliable nodes and four transient ones, of which two serve."""
    with LocalCluster(tmp_path, troubled=True) as cluster:
        cluster.client.hold(2 * CLOCKS // 3)
        job = {"n_reliable": 2, "stage_2_above": 0.5}
        run(cluster, 2, 4, **job)
        server = min(servers(active(cluster)))
        assert cluster.client.checkpoint()["clock"] > 0  # and none while the moment is waited for: it asks backups, too
        cluster.doom(moment, op, victim)
        match BEGUN_BY[op]:
            case "told to go":
                tell(cluster, server)
            case "killed":
                cluster.kill(server)
        struck = cluster.wait_killed()
        if victim is not None:
            assert struck == victim
            cluster.start_controller()
            again = digits_job(cluster, features=2000, clocks=CLOCKS, n_shards=4, **job)
            assert cluster.client.start(again.to_dict())["checkpoint_clock"] > 0
        elif struck.startswith("r"):
            cluster.start_node(f"{struck}-again", "reliable")
        cluster.client.hold(None)
        whole(cluster, undisturbed)


@pytest.mark.parametrize("moment", ["answered", pytest.param("asked", marks=pytest.mark.storm)])
def test_who_is_told_to_go_while_it_receives_shards_hands_them_on(
    tmp_path: Path, undisturbed: bytes, moment: Moment
) -> None:
    """It is stopped meanwhile, so that it is told before it can say that it has them."""
    with LocalCluster(tmp_path, troubled=True) as cluster:
        cluster.client.hold(2 * CLOCKS // 3)
        run(cluster, 2, 4, n_reliable=2, stage_2_above=0.5)
        server = min(servers(active(cluster)))
        cluster.freeze(moment, "proteus_hand_over")
        tell(cluster, server)
        receiver = cluster.wait_frozen()
        tell(cluster, receiver)
        status = cluster.client.status()
        assert node(status, receiver)["state"] == "draining"
        assert server in servers(status), "what it gave away has not arrived"
        cluster.thaw(receiver)
        for name in (server, receiver):
            cluster.wait(lambda s, name=name: node(s, name)["state"] == "drained", f"{name} to be drained")
            cluster.kill(name)
        cluster.client.hold(None)
        status = whole(cluster, undisturbed)
        assert (status["repeated_micro_tasks"], status["went_back"]) == (0, [])
