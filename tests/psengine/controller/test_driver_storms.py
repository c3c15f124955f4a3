"""A job with a driver of its own under losses, rollbacks and restarts: groups of some partitions, arguments, results.

Under any of that it must end with the model, and with the tasks, of the same job in one loop, bit for bit.
"""

import numpy as np
import pytest

from proteus_spot.psengine.config import JobConfig
from proteus_spot.psengine.protocol.events import JobStarted, NodeJoined, TimerFired
from tests.support.controller_model import SHARDS, ModelNode
from tests.support.driver_world import DriverWorld, Loop, Picky

GROUPS, PARTITIONS, SEED = 14, 5, 3


def config() -> JobConfig:
    return JobConfig(
        "driven",
        n_partitions=PARTITIONS,
        n_shards=SHARDS,
        clocks=GROUPS,
        seed=SEED,
        start_patience_s=0.0,
        checkpoint_s=3.0,
        stage_2_above=0.5,
    )


class Storm:
    """One run: what happens next is drawn from a seed."""

    def __init__(self, seed: int, spares: bool = False) -> None:
        self.rng = np.random.default_rng(seed)
        self.world = DriverWorld(config(), spares)
        self.restarts = self.losses = self.withdrawn = 0
        self.begin()

    def begin(self) -> None:
        for reliable in (True, False, False):
            self.join(reliable)
        kept = self.world.kept
        self.world.feed(JobStarted(self.world.config, self.world.now_s, None if kept is None else kept[0]))

    def join(self, reliable: bool) -> None:
        world = self.world
        world.names += 1
        node = ModelNode(f"n{world.names}", f"tcp://{world.names}-{self.restarts}", reliable)
        world.nodes[node.name] = node
        tier = "reliable" if reliable else "transient"
        world.feed(NodeJoined(node.name, node.address, tier, 1, world.now_s))

    def step(self, may_fail: bool) -> None:
        world, rng = self.world, self.rng
        acts = [
            *((world.answer, node) for node in world.waiting()),
            *((world.take, node) for node in world.taking()),
            *((world.back_up, node) for node in world.copying()),
            *((self.work, node) for node in world.busy()),
        ]
        if may_fail and rng.random() < 0.03:
            self.fail()
        elif not acts or rng.random() < 0.1:
            world.now_s += 1.0
            if world.keeping is not None:
                world.written(bool(rng.random() < 0.8))
            world.feed(TimerFired(world.now_s))
        else:
            act, node = acts[rng.integers(len(acts))]
            act(node)  # type: ignore[operator]

    def work(self, node: ModelNode) -> None:
        self.withdrawn += sum(task.withdrawn for task in node.batches[0].tasks)
        self.world.work(node)

    def fail(self) -> None:
        world, rng = self.world, self.rng
        alive = world.alive()
        if rng.random() < 0.2:
            world.restart()
            self.restarts += 1
            self.begin()
            return
        lost = alive[rng.integers(len(alive))]
        if lost.batches and rng.random() < 0.5:  # its updates are there, its report is not
            world.push(lost.batches[0], (int(rng.integers(SHARDS)),) if rng.random() < 0.5 else (0, 1))
        world.lose(lost)
        self.losses += 1
        if len(alive) < 5:
            self.join(lost.reliable)

    def run(self) -> None:
        for number in range(4000):
            if self.world.gathered is not None:
                return
            self.step(may_fail=number < 1200)
        controller = self.world.controller
        raise AssertionError(f"it does not end: {controller.job.state} {controller.job.reason}")


def check(storm: Storm) -> None:
    """Compare with the loop."""
    gathered = storm.world.gathered
    assert gathered is not None
    loop = Loop(Picky(GROUPS), PARTITIONS, SEED)
    assert gathered.committed == GROUPS
    assert gathered.n_updates == sum(len(loop.tasks[group]) for group in range(1, GROUPS + 1))
    for store in storm.world.stores.values():
        assert store.read(GROUPS, exact=True)["w"].item() == loop.values[-1]
        assert store.folded == gathered.n_updates
    assert [clock for clock, _ in gathered.summary["losses"]] == list(range(1, GROUPS + 1))  # type: ignore[attr-defined]


@pytest.mark.parametrize("seeds", [range(25), pytest.param(range(25, 1500), marks=pytest.mark.storm)], ids=str)
def test_a_driver_that_wants_all_back_ends_with_the_bits_of_the_loop(seeds: range) -> None:
    restarts = losses = rollbacks = 0
    for seed in seeds:
        storm = Storm(seed)
        storm.run()
        check(storm)
        restarts, losses = restarts + storm.restarts, losses + storm.losses
        rollbacks += len(storm.world.controller.job.rollbacks)
    assert min(restarts, losses, rollbacks) >= len(seeds) / 5, "the storm is none"


@pytest.mark.parametrize(
    "seeds",
    [
        range(25),
        range(5260, 5261),
        *(pytest.param(seeds, marks=pytest.mark.storm) for seeds in (range(25, 1500), range(5200, 5400))),
    ],
    ids=str,
)
def test_a_driver_that_does_without_executors_counts_each_update_of_the_others_once(seeds: range) -> None:
    withdrawn = 0
    for seed in seeds:
        storm = Storm(seed, spares=True)
        storm.run()
        gathered = storm.world.gathered
        assert gathered is not None
        assert gathered.committed == GROUPS
        values = {store.read(GROUPS, exact=True)["w"].item() for store in storm.world.stores.values()}
        assert len(values) == 1
        assert {store.folded for store in storm.world.stores.values()} == {gathered.n_updates}
        withdrawn += storm.withdrawn
    assert withdrawn >= 3 or len(seeds) == 1, "what was sent is replaced, sometimes"
