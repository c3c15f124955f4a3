"""Nodes that cannot load or cannot open their shards, and when a job fails for want of others."""

from proteus_spot.psengine.config import JobConfig
from proteus_spot.psengine.controller.controller import Controller
from proteus_spot.psengine.controller.status import describe
from proteus_spot.psengine.protocol.events import (
    BatchFailed,
    DrainRequested,
    JobStarted,
    NodeFailed,
    NodeJoined,
    NodeReady,
    NodesLost,
    NodeUnfit,
    ShardsOpened,
    TimerFired,
)
from proteus_spot.psengine.protocol.instructions import Dispatch, LoadPartitions, OpenShards
from tests.support.controller import done, started
from tests.support.controller_invariants import check_invariants


def test_a_node_that_cannot_load_is_set_aside() -> None:
    controller, dispatch = started(JobConfig("unfit", n_partitions=2, n_shards=1, clocks=9))
    controller.handle(NodeJoined("t", "tcp://t", "transient", 1, -0.5))
    (load,) = [o for o in controller.handle(TimerFired(0.0)) if isinstance(o, LoadPartitions)]
    controller.handle(NodeReady("t", "tcp://t", load.request, load.partitions, 0.1))
    orders = controller.handle(done(dispatch, 0.2))
    (theirs,) = [o for o in orders if isinstance(o, Dispatch) and o.node == "t"]
    assert controller.handle(NodeUnfit("t", "tcp://before", "late", 0.3)) == []
    assert controller.job.members.nodes["t"].state == "ready"
    controller.handle(NodeUnfit("t", "tcp://t", "BlobError: disk full", 0.3))
    tasks = tuple((task.partition, task.attempt) for task in theirs.tasks)
    controller.handle(BatchFailed("t", "tcp://t", theirs.group, tasks, "BlobError: disk full", False, 0.3))
    (again,) = [o for o in controller.handle(TimerFired(0.5)) if isinstance(o, Dispatch)]
    assert (again.node, [(t.partition, t.attempt) for t in again.tasks]) == ("r", [(p, a + 1) for p, a in tasks])
    node = next(n for n in describe(controller.job, 0, 0.5)["nodes"] if n["name"] == "t")
    assert (node["state"], node["error"], node["partitions"]) == ("unfit", "BlobError: disk full", [])
    assert controller.handle(DrainRequested(("t",), 5.0, 0.6)) == []
    assert controller.job.members.nodes["t"].state == "drained"  # whoever wants it gone can let it go


def test_a_job_fails_when_no_node_can_load() -> None:
    controller = Controller()
    controller.handle(JobStarted(JobConfig("none", n_partitions=2, n_shards=1, clocks=9), 0.0))
    controller.handle(NodeJoined("t", "tcp://t", "transient", 1, 0.0))
    controller.handle(NodeUnfit("t", "tcp://t", "BlobError: no part", 0.1))
    assert controller.job.state == "starting"  # the reliable node has not come yet
    controller.handle(NodeJoined("r", "tcp://r", "reliable", 1, 0.2))
    assert controller.job.state == "starting"
    controller.handle(NodeUnfit("r", "tcp://r", "BlobError: no part", 0.3))
    assert controller.job.state == "failed"
    assert controller.job.reason == "no node can load: t is unfit: BlobError: no part; r is unfit: BlobError: no part"


def test_an_unfit_reliable_node_serves_all_the_same() -> None:
    controller = Controller()
    controller.handle(JobStarted(JobConfig("serve", n_partitions=2, n_shards=1, clocks=1), 0.0))
    controller.handle(NodeJoined("r", "tcp://r", "reliable", 1, 0.0))
    controller.handle(NodeJoined("t", "tcp://t", "transient", 1, 0.0))
    controller.handle(NodeUnfit("r", "tcp://r", "disk full", 0.1))
    orders = controller.handle(NodeReady("t", "tcp://t", 2, (0, 1), 0.2))
    (opening,) = [o for o in orders if isinstance(o, OpenShards)]
    assert opening.node == "r"
    orders = controller.handle(ShardsOpened("r", "tcp://r", (0,), 1, 0.3))
    assert [(o.node, len(o.tasks)) for o in orders if isinstance(o, Dispatch)] == [("t", 2)]
    controller.handle(NodesLost({"tcp://t": "killed"}, 0.4))
    assert controller.job.state == "waiting"
    assert controller.job.reason == "no node is left to work (r is unfit: disk full); training continues when one joins"


def test_shards_that_an_unfit_node_cannot_open_fail_the_job() -> None:
    controller = Controller()
    controller.handle(JobStarted(JobConfig("open", n_partitions=2, n_shards=1, clocks=1), 0.0))
    controller.handle(NodeJoined("r", "tcp://r", "reliable", 1, 0.0))
    controller.handle(NodeJoined("t", "tcp://t", "transient", 1, 0.0))
    controller.handle(NodeUnfit("r", "tcp://r", "JobError: no such module", 0.1))
    controller.handle(NodeReady("t", "tcp://t", 2, (0, 1), 0.2))
    controller.handle(NodeFailed("r", "tcp://r", "JobError: no such module", 0.3))
    assert (controller.job.state, controller.job.reason) == ("failed", "node r: JobError: no such module")


def test_a_node_that_could_not_read_is_asked_less_and_less_often_and_works_again() -> None:
    controller, dispatch = started(JobConfig("again", n_partitions=2, n_shards=1, clocks=9))
    controller.handle(NodeJoined("t", "tcp://t", "transient", 1, -0.5))
    (load,) = [o for o in controller.handle(TimerFired(0.0)) if isinstance(o, LoadPartitions)]
    controller.handle(NodeUnfit("t", "tcp://t", "OSError: away", 0.0, again=True))
    asked_s = []
    for now_s in range(1, 251):
        for order in controller.handle(TimerFired(float(now_s))):
            if isinstance(order, LoadPartitions):
                asked_s.append(now_s)
                assert (order.node, order.partitions) == ("t", load.partitions)
                load = order
                controller.handle(NodeUnfit("t", "tcp://t", "OSError: away", float(now_s), again=True))
                controller.handle(NodeUnfit("t", "tcp://before", "a report of an earlier process", float(now_s)))
        check_invariants(controller.job)
    assert asked_s == [5, 15, 35, 75, 135, 195]
    assert controller.job.members.nodes["t"].error == "OSError: away"
    controller.handle(NodeReady("t", "tcp://t", load.request - 1, load.partitions, 251.0))
    assert controller.job.members.nodes["t"].state == "unfit", "that is the answer to an earlier request"
    (load,) = [o for o in controller.handle(TimerFired(255.0)) if isinstance(o, LoadPartitions)]
    controller.handle(NodeReady("t", "tcp://t", load.request, load.partitions, 256.0))
    orders = controller.handle(done(dispatch, 257.0))
    assert {o.node for o in orders if isinstance(o, Dispatch)} == {"r", "t"}
    node = next(n for n in describe(controller.job, 0, 257.0)["nodes"] if n["name"] == "t")
    assert (node["state"], node["error"]) == ("ready", "")


def test_a_job_waits_for_a_store_that_is_away_and_not_for_data_that_are_not_there() -> None:
    controller = Controller()
    controller.handle(JobStarted(JobConfig("waits", n_partitions=2, n_shards=1, clocks=9), 0.0))
    controller.handle(NodeJoined("r", "tcp://r", "reliable", 1, 0.0))
    controller.handle(NodeUnfit("r", "tcp://r", "OSError: away", 0.1, again=True))
    assert controller.job.state == "starting"
    assert controller.job.reason == "waiting for a node that can load (r is unfit: OSError: away)"
    controller.handle(TimerFired(6.0))
    controller.handle(NodeUnfit("r", "tcp://r", "JobError: part-00001.npz: is not there", 6.1))
    assert (controller.job.state, controller.job.reason) == (
        "failed",
        "no node can load: r is unfit: JobError: part-00001.npz: is not there",
    )
