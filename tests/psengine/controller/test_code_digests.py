"""The controller and the digests of the user's code: who may work, who may serve, and when the job cannot go on."""

from dataclasses import replace

import pytest

from proteus_spot.psengine.config import JobConfig, JobError, Tier
from proteus_spot.psengine.controller.controller import Controller
from proteus_spot.psengine.protocol.events import JobStarted, NodeJoined, NodeReady, ShardsOpened, TimerFired
from proteus_spot.psengine.protocol.instructions import Instruction, LoadPartitions, OpenShards
from tests.support.controller_invariants import check_invariants

RIGHT, WRONG = "a" * 64, "b" * 64
CONFIG = JobConfig("job", "mine:App", n_partitions=4, n_shards=2, clocks=3, code_sha256=RIGHT, start_patience_s=0.0)


def joined(name: str, tier: Tier, code_sha256: str) -> NodeJoined:
    return NodeJoined(name, f"tcp://{name}", tier, 1, 0.0, code_sha256)


def states(controller: Controller) -> dict[str, str]:
    return {name: node.state for name, node in controller.job.members.nodes.items()}


def answer(controller: Controller, orders: list[Instruction]) -> list[Instruction]:
    """Have every node load and serve what it is told to; return what follows."""
    out: list[Instruction] = []
    for order in orders:
        match order:
            case LoadPartitions():
                out += controller.handle(NodeReady(order.node, order.address, order.request, order.partitions, 1.0))
            case OpenShards():
                out += controller.handle(ShardsOpened(order.node, order.address, order.shards, order.epoch, 1.0))
    return out


def test_a_node_that_joined_before_the_job_is_judged_when_it_starts() -> None:
    controller = Controller()
    for event in (joined("r", "reliable", RIGHT), joined("t", "transient", WRONG), joined("u", "transient", "")):
        assert controller.handle(event) == []
    orders = controller.handle(JobStarted(CONFIG, 0.0))
    assert states(controller) == {"r": "joining", "t": "unfit", "u": "unfit"}
    assert [order.node for order in orders if isinstance(order, LoadPartitions)] == ["r"]
    assert controller.job.members.quarantined == (
        "t is unfit: it has bbbbbbbbbbbb, and the job wants aaaaaaaaaaaa: its code is another; "
        "u is unfit: it has no code, and the job wants aaaaaaaaaaaa: its code is another"
    )
    opened = answer(controller, orders)
    assert [order.node for order in opened if isinstance(order, OpenShards)] == ["r"]
    assert answer(controller, opened)  # it works
    assert controller.job.state == "running"
    check_invariants(controller.job)


def test_a_node_that_joins_a_running_job_is_judged_at_once_and_its_new_process_anew() -> None:
    controller = Controller()
    controller.handle(joined("r", "reliable", RIGHT))
    answer(controller, answer(controller, controller.handle(JobStarted(CONFIG, 0.0))))
    orders = controller.handle(joined("t", "transient", WRONG))
    assert states(controller) == {"r": "ready", "t": "unfit"}
    assert not [order for order in orders if isinstance(order, LoadPartitions)]
    orders = controller.handle(replace(joined("t", "transient", RIGHT), address="tcp://t-again"))
    assert [order.node for order in orders if isinstance(order, LoadPartitions)] == ["t"]
    assert states(controller) == {"r": "ready", "t": "joining"}
    check_invariants(controller.job)


def test_the_job_fails_when_all_have_other_code_and_nobody_is_awaited() -> None:
    controller = Controller()
    controller.handle(joined("r", "reliable", WRONG))
    controller.handle(joined("t", "transient", WRONG))
    assert controller.handle(JobStarted(CONFIG, 0.0)) == []
    assert controller.job.state == "failed"
    assert controller.job.reason.startswith(
        "no node can load: r is unfit: it has bbbbbbbbbbbb, and the job wants aaaaaaa"
    )


def test_the_job_fails_when_nobody_with_its_code_can_serve() -> None:
    controller = Controller()
    controller.handle(joined("t", "transient", RIGHT))
    controller.handle(JobStarted(CONFIG, 0.0))
    assert controller.job.state == "starting"
    controller.handle(joined("r", "reliable", WRONG))
    assert controller.job.state == "failed"
    assert controller.job.reason.startswith("too few nodes can serve: r is unfit: it has bbbbbbbbbbbb")


def test_a_reliable_node_that_is_awaited_is_waited_for() -> None:
    controller = Controller()
    controller.handle(joined("r", "reliable", WRONG))
    controller.handle(JobStarted(replace(CONFIG, n_reliable=2), 0.0))
    assert controller.job.state == "starting"
    controller.handle(joined("s", "reliable", RIGHT))
    controller.handle(TimerFired(0.5))
    assert controller.job.state == "failed"  # two were wanted to serve, two are there, and one of them cannot
    assert controller.job.reason.startswith("too few nodes can serve: r is unfit")


def test_shards_are_never_opened_where_the_code_is_another() -> None:
    controller = Controller()
    controller.handle(joined("r", "reliable", RIGHT))
    controller.handle(joined("s", "reliable", WRONG))
    opened = answer(controller, controller.handle(JobStarted(CONFIG, 0.0)))
    opened += controller.handle(TimerFired(100.0))
    assert [order.node for order in opened if isinstance(order, OpenShards)] == ["r"]


def test_a_job_without_code_takes_nobody_who_has_some() -> None:
    controller = Controller()
    controller.handle(joined("r", "reliable", ""))
    controller.handle(joined("t", "transient", RIGHT))
    controller.handle(JobStarted(replace(CONFIG, code_sha256=""), 0.0))
    assert states(controller) == {"r": "joining", "t": "unfit"}
    assert "it has aaaaaaaaaaaa, and the job wants no code" in controller.job.members.quarantined


@pytest.mark.parametrize("digest", ["a" * 63, "A" * 64, "kmeans.py"])
def test_a_digest_is_one(digest: str) -> None:
    with pytest.raises(JobError, match=r"code_sha256 '.*': want 64 hexadecimal digits, or nothing"):
        replace(CONFIG, code_sha256=digest).validate()
    assert JobConfig.from_dict(CONFIG.to_dict()) == CONFIG
