"""SIGKILL at the worst moment of a hand-over, a round of copies or a recovery: the model is the undisturbed one, bit for bit.

On real processes what tests/psengine/test_moments.py has in virtual time, at the moments when somebody has something that
the other has not.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from tests.support.doom import Moment
from tests.support.engine import LocalCluster, digits_job
from tests.support.tiers import CLOCKS, active, run, servers, whole

pytestmark = [pytest.mark.e2e]

#: What happens to a server for the call to be made; copies are made without.
BEGUN_BY = {"proteus_hand_over": "told to go", "proteus_keep": "", "proteus_kept": "killed"}
#: The moment of a call, and who dies at it: whoever has been answered, whoever has done it, or the controller meanwhile.
WORST: list[tuple[Moment, str | None]] = [("answered", None), ("done", None), ("done", "controller")]
#: of a hand-over here, once it is done; the others in `make storms`
CASES = [
    pytest.param(op, moment, victim, marks=[] if (op, moment) == ("proteus_hand_over", "done") else pytest.mark.storm)
    for op, (moment, victim) in product(BEGUN_BY, WORST)
]


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
        assert cluster.client.checkpoint()["clock"] > 0  # and none while the moment is waited for: it asks keepers, too
        cluster.doom(moment, op, victim)
        match BEGUN_BY[op]:
            case "told to go":
                cluster.client.notice(server, 30.0)
                cluster.client.drain([server], 30.0)
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
