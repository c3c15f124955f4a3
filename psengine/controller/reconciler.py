"""What follows from the facts that events have changed: the actions that several events share.

An event changes facts and says what is due (`Due`). After it `reconcile` compares the facts with what is wanted, which
node works on what, where each shard and replica is, which task runs, and issues the instructions that are lacking.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite

from proteus_spot.psengine.controller.model_saving import Saving
from proteus_spot.psengine.controller.state import ENDED, CannotContinue, ControllerState, Due
from proteus_spot.psengine.controller.status import summary
from proteus_spot.psengine.membership.node_record import NodeRecord, memory_of
from proteus_spot.psengine.protocol.instructions import GatherModel, RecallTasks
from proteus_spot.psengine.tables.allowed_values import WANT_FINITE
from proteus_spot.psengine.telemetry.formatting import format_ranges
from proteus_spot.psengine.tiers.measured_stage import ClockTime

#: What a driver has to do that has nothing more to dispatch.
_TO_END = "a driver ends the job with `finish`"
#: Maximum number of successive failures to open the shards; each includes a node's own read retries.
MOST_NOT_OPENED = 20
#: Seconds after which shards that are not open yet are opened again; a node gives up its own reads before that.
OPEN_S = 1800.0
#: Maximum number of repeated attempts to open them from replicas; a node that is cut off is lost by then.
MOST_FROM_REPLICAS = 5
#: Seconds until the second attempt; the pause doubles each time, up to a maximum.
_REOPEN_S, _MOST_REOPEN_S = 0.5, 60.0

#: Number of nodes that load from which on nodes are planned for once a tick: each plan looks at all partitions.
MANY_LOAD = 32


class Reconciler:
    """Actions on the state of a job."""

    def __init__(self, job: ControllerState) -> None:
        self._job = job

    def send_maps(self) -> None:
        """Send every node the present map."""
        job = self._job
        job.map_sent, job.maps_due = job.shards.version, False
        job.instructions += [job.shards.update_for(node) for node in job.members.present.values()]

    def reconcile(self, now_s: float) -> None:
        """Issue what the facts lack: maps, loads, moves, replicas and tasks, as far as events have changed what is due.

        Notices and joins are collected for a short time, and then planned for together.
        """
        job = self._job
        if job.state in ENDED:
            return
        may_leave = job.members.settle(self._busy)
        if job.maps_due and (may_leave or not job.shards.moving):
            # Servers redirect what comes to them for shards that have moved; one that may leave does not for long.
            self.send_maps()
        if job.departures.notices.take(now_s) | job.joins.due(now_s):
            job.mark_due(Due.NODES)
        if job.due == Due.NODES:
            self._plan()
        if self._end_work(now_s):  # planned for first, so that its partitions go to their heirs
            job.mark_due(Due.NODES)
            self._plan()
        due, job.due = job.due, Due.NOTHING
        if due >= Due.SHARDS:
            self._begin(now_s)
            self._adapt(now_s)
        if due >= Due.TASKS:
            self._dispatch(now_s)

    def end_at(self, clock: int) -> None:
        """Begin no clock after `clock`; the first clock is always completed, since without one there is no model."""
        self._job.stopping.end_at(max(1, clock))

    def end_without_model(self, now_s: float) -> None:
        """End a job whose stop was requested if there is nothing to save."""
        job = self._job
        left = job.begun or job.recovery.restored is not None or job.checkpoints.under_way is not None
        if not left and job.stopping.stop_reason is not None:
            self.end(summary(job, now_s) | {"lost_micro_tasks": 0})

    def end(self, result: dict[str, object], reason: str = "") -> None:
        """End with `result`; its `stopped`, which the manifest also holds, decides between stopped and finished."""
        job = self._job
        stopped = result.get("stopped")
        job.result, job.lost_micro_tasks = result, 0
        job.members.settle(lambda name: False)  # nothing is served from now on
        job.state, job.reason = ("finished", reason) if stopped is None else ("stopped", str(stopped))

    def _gather(self, now_s: float) -> None:
        job = self._job
        assert job.tasks is not None
        assert job.config is not None
        job.state, job.reason = "running", "saving the model"
        job.saving = Saving(
            GatherModel(
                job.config,
                job.tasks.common,
                job.shards.owners,
                summary(job, now_s),
                job.tasks.n_updates,
                job.tasks.states.at(job.tasks.common),
            )
        )
        job.instructions.append(job.saving.instruction)

    def save_checkpoint(self, now_s: float) -> None:
        """Begin a checkpoint, if one is due."""
        job = self._job
        if job.training and not job.shards.opening and job.saving is None:
            job.instructions += job.recovery.keep(now_s, lambda clock: summary(job, now_s, clock))

    def _begin(self, now_s: float) -> None:
        """Open the shards when enough nodes are present; wait for nodes that still load, up to `start_patience_s`.

        After a loss the complete reliable tier is not waited for.
        """
        job = self._job
        if job.config is None or job.asked_s is None or job.begun or job.shards.opening:
            return
        again = job.progress.started_s is not None
        if job.stopping.ending and job.recovery.restored is None and job.checkpoints.under_way is not None:
            return  # that checkpoint is about to become the model to save
        if job.members.cannot_serve and not again:
            raise CannotContinue(f"too few nodes can serve: {job.members.quarantined}")
        if job.reopen_s is not None and now_s < job.reopen_s:
            return
        patient = now_s - job.asked_s < job.config.start_patience_s
        servers = job.members.servers(patient, few=again and not patient)
        if servers:
            job.reason, job.reopen_s = "opening the shards", None
            job.instructions += job.tiers.open(job.config, servers, job.recovery.restored)

    def continue_without_quarantined(self) -> None:
        """Continue without the quarantined nodes; fail when there are no others and none is awaited."""
        job = self._job
        if job.members.cannot_load:
            raise CannotContinue(f"no node can load: {job.members.quarantined}")
        if not job.begun and not job.members.in_state("joining", "ready"):
            job.reason = f"waiting for a node that can load ({job.members.quarantined})"
        job.mark_due(Due.NODES)

    def _end_work(self, now_s: float) -> bool:
        """End the work of leaving nodes whose time has come; return whether there are any.

        What still runs on a draining node after its deadline is given up.
        """
        job = self._job
        if job.tasks is None:
            return False
        ended = job.departures.end_work(job.tasks, now_s)
        overdue = job.members.overdue(now_s)
        for name in overdue:
            job.tasks.give_up(name)
        if ended or overdue:
            job.members.settle(self._busy)
        return ended

    def _adapt(self, now_s: float) -> None:
        """Move shards and replicas to where they should be; not while the model is gathered."""
        job = self._job
        config, members, tasks = job.config, job.members, job.tasks
        if not job.begun or job.saving is not None or config is None or tasks is None:
            return
        last = job.stopping.last_clock
        over = last is not None and tasks.common >= last  # gathered from leaving nodes, the model might be lost
        # The next notice may be for a node that shards would go to.
        stay = bool(job.departures.notices.size) and not over
        if not members.in_state("leaving", "draining"):
            stay = job.joins.may_serve_soon(now_s, bool(members.in_state("joining")))
        serving_on = frozenset() if over else job.departures.serving_on(tasks, now_s)
        job.instructions += job.tiers.adapt(config, members, tasks.common, now_s, serving_on, stay, tasks.states)

    def _busy(self, name: str) -> bool:
        job = self._job
        if job.tasks is None:
            return False
        states = job.tasks.states
        has_states = states.held_at(job.members.nodes[name].address) > 0
        is_needed = job.shards.serves(name) or has_states or job.tiers.awaits_copies(name, job.members, states)
        return is_needed or job.tasks.running_on(name) > 0

    def mark_nodes_due(self) -> None:
        """Mark the nodes as due; if many load, they are planned for together, at the next tick."""
        job = self._job
        if len(job.members.index.by_name("joining")) >= MANY_LOAD:
            job.plan_due = True
        else:
            job.mark_due(Due.NODES)

    def _plan(self) -> None:
        """Choose the stage for the present nodes, and which node works on what in it."""
        job = self._job
        if job.begun and job.departures.notices.size:  # nodes that get a notice next must not start to load
            job.members.switch()
            return
        job.plan_due = False
        if job.config is not None and job.begun:
            job.tiers.choose_stage(job.config, job.members)
        self._replan()

    def _replan(self) -> None:
        """Bring the placement in line with the nodes; during a rollback no node is instructed to load.

        More nodes may be lost along with the first: loads planned for one loss at a time are wasted after the next.
        """
        job = self._job
        self._withhold()
        if job.begun and job.shards.opening:
            job.members.take_over()
        else:
            job.instructions += job.members.replan(job.begun, job.have_states)

    def recover(self, reason: str, now_s: float) -> None:
        """Roll back to the last common clock of which every shard is available."""
        job = self._job
        assert job.config is not None
        job.mark_due(Due.NODES)
        if job.progress.started_s is None:  # nothing was done yet
            job.tiers.abandon(job.members)
            return
        job.tiers.choose_stage(job.config, job.members)
        job.reopen_s = None
        instructions = job.recovery.roll_back_to_replicas(reason) if job.begun else None
        if instructions is None:
            self.roll_back_to_checkpoint(reason, now_s)
        else:
            self._after_rollback()
            job.instructions += instructions

    def roll_back_to_checkpoint(self, reason: str, now_s: float) -> None:
        """Roll back to the last checkpoint, or to the beginning, as soon as a node can serve."""
        job = self._job
        job.recovery.roll_back_to_checkpoint(reason)
        job.begun, job.asked_s = False, now_s
        self._after_rollback()
        job.state = "waiting"
        self.end_without_model(now_s)
        job.mark_due(Due.NODES)

    def open_anew(self, shards: Sequence[int], error: str, again: bool, now_s: float) -> None:
        """Have shards that could not be opened opened again from their replicas, if that may help, or a checkpoint."""
        job = self._job
        why = f"shards {tuple(shards)} could not be opened"
        if job.begun and (job.not_opened >= MOST_FROM_REPLICAS or not again):
            job.not_opened = 0
            self.roll_back_to_checkpoint(f"{why}: {error}", now_s)
            return
        job.not_opened += 1
        if job.not_opened >= MOST_NOT_OPENED:
            raise CannotContinue(f"{why} {job.not_opened} times: {error}")
        job.reopen_s = now_s + min(_REOPEN_S * 2.0 ** (job.not_opened - 1), _MOST_REOPEN_S)
        if job.begun:
            job.reason = f"{why} and are opened again: {error}"
        else:
            self.roll_back_to_checkpoint(f"{why}: {error}", now_s)

    def give_up_opening(self, now_s: float) -> None:
        """Treat shards whose opening has taken too long as not opened: a node may be stuck."""
        job = self._job
        generation = job.shards.generation
        if not job.shards.opening or job.reopen_s is not None:
            job.opening = None
        elif job.opening is None or job.opening[0] != generation:
            job.opening = generation, now_s
        elif now_s >= job.opening[1] + OPEN_S:
            unopened = job.shards.unopened
            error = f"node {job.shards.owners[unopened[0]].node} has not reported in {OPEN_S:g} s"
            self.open_anew(unopened, error, False, now_s)

    def reopen(self, now_s: float) -> None:
        """Open the shards from their replicas again, after the pause that follows a failure; nothing more is lost."""
        job = self._job
        if not job.begun or job.reopen_s is None or now_s < job.reopen_s or job.config is None:
            return
        job.reopen_s = None
        restored = job.tiers.restore_from_replicas(job.config, job.members)
        if restored is None:
            self.roll_back_to_checkpoint("replicas of shards were lost", now_s)
        else:
            job.instructions += restored[1]

    def _after_rollback(self) -> None:
        if self._job.late_stop is not None and self._job.tasks is not None:
            self._job.stopping.stop_reason = self._job.late_stop
            self.end_at(self._job.tasks.common)
        self._job.stopping.roll_back()
        if self._job.dispatcher is not None:
            self._job.dispatcher.roll_back()
        if self._job.stopping.ending and self._job.tasks is not None:
            self.end_at(self._job.tasks.common)  # a job that is to end does not repeat the lost clocks
        self.count_clocks()
        self._job.saving, self._job.reason = None, self._job.rollbacks[-1][1]
        self._job.tiers.interrupt()

    def advance(self, now_s: float) -> bool:
        """Commit the groups that are complete, and inform the driver; return whether there are any."""
        job = self._job
        tasks, driver = job.tasks, job.driver
        if tasks is None or driver is None:
            return False
        before = tasks.common
        while tasks.commit_next():
            if tasks.common in driver.evaluations:
                job.history.evaluating.request(tasks.common)
            complete, last = driver.clock, job.progress.last_complete[1]
            driver.committed(tasks.common)
            counted = not driver.counts_clocks or driver.clock > complete
            job.progress.close(tasks.common, driver.clock if counted else None, now_s, job.stage)
            self._check_loss()
            if not driver.counts_clocks or (counted and last == tasks.common - 1):  # a clock of several is not alike
                self._measure(tasks.common)
        if driver.end is not None:
            group, reason = driver.end
            job.stopping.converge_at(group if group > tasks.common else tasks.last_begun, reason)
        elif tasks.common > before:
            passes = driver.passes(tasks.common, job.progress.examples)
            if reason := job.stopping.reached(job.progress.losses, passes, job.history.evaluating.points):
                job.stopping.converge_at(max(1, tasks.last_begun), reason)
        self.count_clocks()
        self._end_after_passes()
        replicated = job.tiers.backups.oldest_group
        driver.forget_before(tasks.common if replicated is None else min(replicated, tasks.common))
        if tasks.common > before:
            self._look_at_memory()
        return tasks.common > before

    def _check_loss(self) -> None:
        """Fail if the loss of the last clock is not finite: each part of it may be."""
        job = self._job
        clock, loss = job.progress.losses[-1] if job.progress.losses else (0, 0.0)
        if job.config is not None and job.config.finite and not isfinite(loss):
            raise CannotContinue(f"the loss of clock {clock} is {loss}: {WANT_FINITE}")

    def count_clocks(self) -> None:
        """Let the stopping rule know the clocks that a driver has counted."""
        job = self._job
        if job.driver is not None and job.driver.counts_clocks:
            job.stopping.complete(*job.progress.last_complete)

    def _end_after_passes(self) -> None:
        """Set the last clock of a job with a number of passes: the first dispatched one with that many."""
        job = self._job
        tasks, driver, config = job.tasks, job.driver, job.config
        if config is None or config.passes is None or tasks is None or driver is None:
            return
        for group in range(max(1, tasks.common), tasks.sealed + 1):
            passes = driver.passes(group, job.progress.examples)
            if passes is not None and passes >= config.passes:
                job.stopping.passes_made_at(max(group, tasks.last_begun))
                return

    def _measure(self, clock: int) -> None:
        """Note the time of a committed clock; at the next tick a faster stage, or number of servers, is chosen."""
        job = self._job
        if job.config is None:
            return
        took = ClockTime(job.progress.clock_seconds[-1], job.progress.kernel_s(clock))
        job.plan_due |= job.tiers.note_clock(job.config, job.members, took)

    def _look_at_memory(self) -> None:
        """Note the memory of the nodes at a common clock; offer nodes for release and merge servers by it."""
        job = self._job
        assert job.config is not None
        working = job.members.in_state("ready", "leaving")
        counted = memory_of(working, job.members.placement.by_owner)
        job.history.note_memory(job.progress.last_complete[0], counted, len(working))
        if job.config.scale_in:
            job.scale_in.look(job.tiers.holding(job.config, job.members, counted))
            job.tiers.most_servers = job.scale_in.most_servers

    def _dispatch(self, now_s: float) -> None:
        """Dispatch the tasks that may run. At the end: gather the model."""
        job = self._job
        tasks, driver, dispatcher, limits = job.tasks, job.driver, job.dispatcher, job.stopping
        if not job.begun or tasks is None or job.saving is not None or job.shards.opening:
            return
        assert driver is not None
        assert dispatcher is not None
        ready = job.departures.may_begin(now_s)
        self._note_unowned(ready)
        if self._withhold():
            self._replan()
        if driver.absent:
            self._return_partitions(ready)
        self.advance(now_s)  # groups may be complete without partitions that are absent
        working = bool(ready) or bool(tasks.running)
        if limits.ending and not working:  # no node is left to complete the clock under way
            if not tasks.common and limits.stop_reason is not None:
                self.end(summary(job, now_s) | {"lost_micro_tasks": 0})
                return
            self.end_at(tasks.common)
        if limits.last_clock is not None and tasks.common >= limits.last_clock:
            self._adapt(now_s)  # move the shards of leaving nodes
            if not job.shards.moving:
                self._gather(now_s)
            return
        if tasks.idle and not driver.absent:
            raise CannotContinue(
                f"the driver dispatched nothing more, or left group {tasks.sealed + 1} open: {_TO_END}"
            )
        job.state = "running" if working and not tasks.idle else "waiting"
        if not working:
            quarantined = job.members.quarantined and f" ({job.members.quarantined})"
            job.reason = f"no node is left to work{quarantined}; training continues when one joins"
        elif tasks.idle:
            job.reason = f"the driver waits for partitions {format_ranges(driver.absent)}, whose nodes were lost"
        else:
            job.reason = job.progress.trouble
        placement = job.members.placement
        job.instructions += [
            RecallTasks(name, job.members.nodes[name].address, group)
            for name, group in dispatcher.recalls(placement, ready, job.departures.completing(now_s)).items()
        ]
        job.instructions += dispatcher.states_to_take(placement, ready, job.members.in_state("draining"))
        job.instructions += dispatcher.orders(
            placement, ready, limits.limit, job.map_sent, job.shards.generation, job.departures.ending(now_s)
        )

    def _note_unowned(self, ready: Mapping[str, NodeRecord]) -> None:
        """Report partitions to the driver that have no node, since no node may own more partitions."""
        job = self._job
        assert job.driver is not None
        unowned = frozenset(job.members.placement.by_owner.get(None, ()) if ready else ())
        if new := unowned - job.unowned:
            job.driver.vanished(new)
        job.unowned = unowned

    def _withhold(self) -> bool:
        """Let the driver say which partitions stay without a node; return whether these are others than before."""
        driver, members = self._job.driver, self._job.members
        absent = frozenset() if driver is None else frozenset(driver.absent)
        before = members.withheld
        members.withheld = absent
        if absent and driver is not None:
            members.withheld = absent - driver.restarts(members.room_for(len(absent)))
        return members.withheld != before

    def _return_partitions(self, ready: Mapping[str, NodeRecord]) -> None:
        """Report omitted partitions to the driver once a working node has loaded their input."""
        job = self._job
        assert job.driver is not None
        owner = job.members.placement.owner
        back = [part for part in job.driver.absent if (name := owner[part]) is not None and name in ready]
        job.driver.returned([part for part in back if part in ready[owner[part] or ""].holds])
