"""Random joins, loads, notices, losses, completions, late and duplicate messages against the controller.

The nodes and the shards' servers are modelled beside it: real `ShardStore`s, nodes as queues of their instructions. The
model never asks the controller for a state that it tracks itself.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, precondition, rule

from proteus_spot.psengine.config import JobConfig
from proteus_spot.psengine.controller.controller import Controller
from proteus_spot.psengine.controller.draining import FLOOR_S
from proteus_spot.psengine.protocol.events import (
    CheckpointRequested,
    DrainRequested,
    HoldRequested,
    JobStarted,
    ModelSaved,
    NodeJoined,
    NodeUnfit,
    NoticeReceived,
    SaveFailed,
    StopRequested,
    TimerFired,
)
from proteus_spot.psengine.protocol.instructions import Dispatch
from proteus_spot.psengine.scheduling.task_table import lost_updates
from tests.support.controller_model import SHARDS, ModelNode, World


class ControllerMachine(World, RuleBasedStateMachine):
    late = Bundle("late")

    @initialize(
        partitions=st.integers(1, 7),
        clocks=st.sampled_from([1, 2, 5, 40, 40]),
        staleness=st.sampled_from([0, 0, 1, 3]),
        n=st.integers(1, 4),
        begun=st.sampled_from([True, True, False]),
        checkpoint_s=st.sampled_from([None, 1.0, 30.0]),
        stage_2_above=st.sampled_from([0.0, 0.0, 1.0]),
        stage_3_above=st.sampled_from([2.0, 15.0]),
        max_seconds=st.sampled_from([None, None, None, 20.0]),
    )
    def begin(
        self,
        partitions: int,
        clocks: int,
        staleness: int,
        n: int,
        begun: bool,
        checkpoint_s: float | None,
        stage_2_above: float,
        stage_3_above: float,
        max_seconds: float | None,
    ) -> None:
        config = JobConfig(
            "storm",
            n_partitions=partitions,
            n_shards=SHARDS,
            staleness=staleness,
            clocks=clocks,
            start_patience_s=3.0,
            checkpoint_s=checkpoint_s,
            stage_2_above=stage_2_above,
            stage_3_above=stage_3_above,
            max_seconds=max_seconds,
        )
        self.anew(config)
        self.most: int | None = None  # the clock after which none is begun, once the job was told to stop
        self.join(reliable=True, threads=1)
        for i in range(n - 1):
            self.join(reliable=False, threads=1 + i % 2)
        self.feed(JobStarted(self.config, self.now_s))
        while begun and self.waiting():
            for node in self.waiting():
                self.answer(node)

    # -- rules ----------------------------------------------------------------------------------------------------

    @rule(reliable=st.booleans(), threads=st.integers(1, 4))
    def join(self, reliable: bool, threads: int) -> None:
        if len(self.alive()) >= 6:
            return
        self.names += 1
        node = ModelNode(f"n{self.names}", f"tcp://{self.names}", reliable)
        self.nodes[node.name] = node
        tier = "reliable" if reliable else "transient"
        self.feed(NodeJoined(node.name, node.address, tier, threads, self.now_s))

    @rule()
    def stranger_joins(self) -> None:
        """A node whose code is not the job's: it is told nothing to load, to open or to work on, ever."""
        if len(self.alive()) >= 6 or all(node.unfit or node.noticed for node in self.alive()):
            return  # where nobody can load the job fails: see test_code_digests
        self.names += 1
        node = ModelNode(f"n{self.names}", f"tcp://{self.names}", False, unfit=True, stranger=True)
        self.nodes[node.name] = node
        self.feed(NodeJoined(node.name, node.address, "transient", 1, self.now_s, "b" * 64))

    @invariant()
    def strangers_do_nothing(self) -> None:
        for node in self.nodes.values():
            assert not (node.stranger and [*node.loads, *node.opens, *node.batches]), node.name

    @precondition(lambda self: self.waiting())
    @rule(data=st.data(), times=st.integers(1, 3))
    def loads(self, data: st.DataObject, times: int) -> None:
        """A node finishes what it was told to load or open; doubled reports are thrown in."""
        self.answer(data.draw(st.sampled_from(self.waiting())), times)

    @precondition(lambda self: self.taking())
    @rule(data=st.data(), comes=st.sampled_from(["all", "all", "half", "away"]))
    def shards_move(self, data: st.DataObject, comes: str) -> None:
        self.take(data.draw(st.sampled_from(self.taking())), comes)

    @precondition(lambda self: self.copying())
    @rule(data=st.data(), works=st.sampled_from([True, True, False]))
    def shards_are_copied(self, data: st.DataObject, works: bool) -> None:
        self.back_up(data.draw(st.sampled_from(self.copying())), works)

    @precondition(lambda self: self.gathered is not None)
    @rule()
    def save_fails(self) -> None:
        """The model could not be gathered, for want of a server maybe; it is done again, or all go back."""
        self.gathered = None
        self.feed(SaveFailed("store away", False, self.now_s))

    @precondition(lambda self: self.busy())
    @rule(data=st.data(), target=late)
    def batch_done(self, data: st.DataObject) -> object:
        return self.work(data.draw(st.sampled_from(self.busy())))

    @rule(times=st.integers(1, 5), target=late)
    def everybody_works(self, times: int) -> object:
        """Some clocks go by as on a calm day, so that what follows befalls a job that has come somewhere."""
        orders = []
        for _ in range(times):
            for node in self.alive():
                while node.loads or node.opens:
                    self.answer(node)
                while node.takes:
                    self.take(node)
                while node.backups:
                    self.back_up(node)
                if node.batches:
                    orders.append(self.work(node))
        return multiple(*orders)

    @rule(order=late, what=st.sampled_from(["push", "report", "both"]))
    def doubled_or_late(self, order: Dispatch, what: str) -> None:
        if order.node not in self.nodes:
            return  # its process died with all the others, and its messages with their connections
        if what in ("push", "both"):
            self.push(order, (0, 1))
        if order.node not in self.nodes:
            return
        if what in ("report", "both"):
            self.report(order)

    @rule(data=st.data(), target=late, pushed=st.sampled_from([(), (0,), (1,), (0, 1)]), done=st.booleans())
    def lose(self, data: st.DataObject, pushed: tuple[int, ...], done: bool) -> object:
        """A node is killed in the middle of its work; what it had sent may arrive now or later."""
        if not self.alive():
            return multiple()
        return self.killed(data.draw(st.sampled_from(self.alive())), pushed, done)

    @precondition(lambda self: len(self.alive()) > 1)
    @rule(data=st.data())
    def lose_many(self, data: st.DataObject) -> None:
        """Some are killed at one time, with all that they had begun."""
        alive = {node.name: node for node in self.alive()}
        gone = data.draw(st.lists(st.sampled_from(sorted(alive)), min_size=2, unique=True))
        for name in gone:
            self.give_up(list(alive[name].batches))
        super().lose(*(alive[name] for name in gone))

    @precondition(lambda self: any(not node.reliable for node in self.serving()))
    @rule(data=st.data(), target=late, pushed=st.sampled_from([(), (0,), (0, 1)]), clocks=st.integers(0, 3))
    def lose_an_active_server(self, data: st.DataObject, pushed: tuple[int, ...], clocks: int) -> object:
        """The market takes a node that serves, without a word, when some clocks have gone by."""
        for _ in range(clocks):
            for node in self.alive():
                while node.backups:
                    self.back_up(node)
                if node.batches:
                    self.work(node)
        active = [node for node in self.serving() if not node.reliable]
        return self.killed(data.draw(st.sampled_from(active)), pushed, True) if active else multiple()

    def killed(self, node: ModelNode, pushed: tuple[int, ...], done: bool) -> object:
        ghosts = list(node.batches)
        for order in ghosts:
            self.push(order, pushed)
        self.give_up(ghosts)
        super().lose(node)
        if done and ghosts and pushed == (0, 1):
            self.report(ghosts[0])  # its report was under way when it died
        return multiple(*ghosts) if pushed == (0, 1) else multiple()

    @rule(data=st.data(), seconds=st.sampled_from([0.5, 5.0, 30.0]), notice=st.booleans())
    def leave(self, data: st.DataObject, seconds: float, notice: bool) -> None:
        if not self.alive():
            return
        node = data.draw(st.sampled_from(self.alive()))
        node.noticed = True
        node.until_s = min(node.until_s, self.now_s + seconds)
        works_until_s = node.until_s - FLOOR_S if notice else self.now_s
        node.works_until_s = min(node.works_until_s, works_until_s)
        if notice:
            self.feed(NoticeReceived(node.name, seconds, self.now_s))
        else:
            self.feed(DrainRequested((node.name, "nobody"), seconds, self.now_s))

    @precondition(lambda self: self.busy())
    @rule(data=st.data())
    def batch_failed(self, data: st.DataObject) -> None:
        node = data.draw(st.sampled_from(self.busy()))
        order = node.batches.pop(0)
        self.push(order, (1,))
        self.fail(node, order, "server away")

    @precondition(lambda self: any(node.recalls for node in self.alive()))
    @rule(data=st.data())
    def tasks_are_given_back(self, data: st.DataObject) -> None:
        self.give_back(data.draw(st.sampled_from([node for node in self.alive() if node.recalls])))

    @rule(data=st.data(), worked=st.booleans())
    def cannot_load(self, data: st.DataObject, worked: bool) -> None:
        """A node gives up reading; what else it has to do it may do, or fail at. One that can load is always left."""
        able = [node for node in self.alive() if not (node.unfit or node.noticed)]
        if len(able) < 2:
            return
        node = data.draw(st.sampled_from(able))
        node.unfit = True
        node.loads.clear()
        self.feed(NodeUnfit(node.name, node.address, "disk full", self.now_s))
        if node.batches and not worked:
            self.fail(node, node.batches.pop(0), "disk full")

    @rule(seconds=st.sampled_from([0.25, 1.0, 4.0]))
    def tick(self, seconds: float) -> None:
        self.now_s += seconds
        for node in self.alive():
            if node.until_s <= self.now_s:
                self.give_up(node.batches)
        self.feed(TimerFired(self.now_s))

    @precondition(lambda self: self.names > 4)
    @rule()
    def start_again(self) -> None:
        self.feed(JobStarted(self.config, self.now_s))

    @rule(ahead=st.sampled_from([None, 0, 1, 2]))
    def hold(self, ahead: int | None) -> None:
        self.held = None if ahead is None else self.common() + ahead
        self.feed(HoldRequested(self.held, self.now_s))

    @precondition(lambda self: self.most is None and self.gathered is None and self.common() > 0)
    @rule(enough=st.sampled_from([True, False, False, False, False, False]))
    def stop(self, enough: bool) -> None:
        if enough:
            under_way = [
                order.group for node in self.alive() for order in node.batches if order.generation == self.generation
            ]
            self.most = max([1, self.common(), *under_way, *(clock for clock, _ in self.completed)])
            self.feed(StopRequested("enough", self.now_s))

    @precondition(lambda self: self.common() > 0)
    @rule()
    def ask_for_a_checkpoint(self) -> None:
        self.feed(CheckpointRequested(self.now_s))

    @precondition(lambda self: self.keeping is not None)
    @rule(whole=st.sampled_from([True, True, False]))
    def checkpoint_is_written(self, whole: bool) -> None:
        self.written(whole)

    @precondition(lambda self: self.gathered is None and self.common() > 0)
    @rule(n=st.integers(1, 3), paused=st.booleans())
    def everything_dies(self, n: int, paused: bool) -> None:
        """All processes are killed, and some come back: the job goes on from what was kept, or from the beginning.

        Who pauses a job has its state kept before, in the middle of whatever it does.
        """
        if paused:
            self.ask_for_a_checkpoint()
            if self.keeping is not None:
                self.written(True)
        self.keeping = None
        clock = 0 if self.kept is None else self.kept[0].group
        self.completed = {key for key in self.completed if key[0] <= clock}
        self.repeats_before = 0 if self.kept is None else self.kept[0].summary["repeated_micro_tasks"]
        self.attempts, self.given_up, self.stores, self.nodes = {}, set(), {}, {}
        self.served_at, self.copies, self.generation = {}, {}, 0
        self.frozen, self.doubtful = {}, set()
        self.dispatches.clear()
        self.controller, self.held, self.most = Controller(), None, None
        for i in range(n):
            self.join(reliable=i == 0, threads=1)
        self.feed(JobStarted(self.config, self.now_s, None if self.kept is None else self.kept[0]))

    # -- what must hold -------------------------------------------------------------------------------------------

    @invariant()
    def every_partition_has_an_owner(self) -> None:
        if getattr(self, "controller", None) is None or not self.controller.job.training:
            return
        ready = {n.name for n in self.controller.job.members.in_state("ready", "leaving")}
        assert all(
            (owner in ready) if ready else owner is None for owner in self.controller.job.members.placement.owner
        )

    @invariant()
    def who_serves_is_not_drained(self) -> None:
        if getattr(self, "controller", None) is not None:
            drained = {node.name for node in self.controller.job.members.in_state("drained")}
            assert not any(self.controller.job.shards.serves(name) for name in drained)

    @invariant()
    def what_is_done_is_what_the_model_says(self) -> None:
        if getattr(self, "controller", None) is None or self.controller.job.tasks is None:
            return
        if self.controller.job.training:
            done = [max((c for c, q in self.completed if q == p), default=0) for p in range(self.config.n_partitions)]
            assert [self.controller.job.tasks.completed(p) for p in range(self.config.n_partitions)] == done
            assert self.controller.job.tasks.common == self.common()
            assert [clock for clock, _ in self.controller.job.progress.losses] == list(range(1, self.common() + 1))

    def teardown(self) -> None:
        """Whatever happened, with one more node the job ends, and each update is in the model exactly once."""
        if getattr(self, "controller", None) is None:
            return
        self.hold(None)
        if self.keeping is not None:  # a stopped job that has lost all waits for it
            self.written(True)
        self.join_for_good()
        for _ in range(400):
            if self.gathered is not None:
                if len(self.stores) == SHARDS:
                    break
                self.gathered = None  # a server was lost in the midst of it
                self.feed(SaveFailed("server away", False, self.now_s))
            for node in self.alive():
                while node.loads or node.opens:
                    self.answer(node)
                while node.takes:
                    self.take(node)
                while node.backups:
                    self.back_up(node)
                while node.batches:
                    self.work(node)
            self.tick(4.0)
        if self.gathered is None and self.most is not None and self.kept is None:
            assert (self.controller.job.state, self.controller.job.reason) == ("stopped", "enough"), (
                "with nothing to save"
            )
            return
        assert self.gathered is not None, (
            f"the job does not end: {self.controller.job.state} {self.controller.job.reason}"
        )
        clocks, partitions = self.gathered.committed, self.config.n_partitions
        assert clocks >= 1, "a model of nothing"
        if self.most is not None:
            assert clocks <= self.most, "more was done for a job that was to stop"
        elif self.config.max_seconds is None:
            assert clocks == self.config.clocks
        else:
            assert clocks <= (self.config.clocks or 0)
        total = self.value(clocks)
        for store in self.stores.values():
            assert store.read(clocks, exact=True)["w"].item() == total
        folded = tuple(store.folded for store in self.stores.values())
        lost = lost_updates(folded, clocks * partitions)
        assert folded == (clocks * partitions,) * SHARDS
        repeats = self.repeats_before + sum(count - 1 for count in self.dispatches.values())
        assert self.gathered.summary["repeated_micro_tasks"] == repeats
        assert lost == 0
        counted = sum(self.gathered.summary["micro_tasks_done"].values())
        assert counted == clocks * partitions, "each task counts once, whatever died in between"
        stopped = None if self.most is None else "enough"
        self.feed(ModelSaved({"lost_micro_tasks": lost, "stopped": stopped}, self.now_s))
        assert self.controller.job.state == ("finished" if stopped is None else "stopped")

    def join_for_good(self) -> None:
        self.names += 1
        node = ModelNode(f"n{self.names}", f"tcp://{self.names}", True)
        self.nodes[node.name] = node
        self.feed(NodeJoined(node.name, node.address, "reliable", 1, self.now_s))


TestControllerMachine = ControllerMachine.TestCase
TestControllerMachine.settings = settings(
    max_examples=200,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
