"""What follows from the facts that events have changed: the actions that several events share.

An event changes facts and says what is due (`Due`). After it `_reconcile` compares the facts with what is wanted, which
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


class Consequences(ControllerState):
    """Actions on the state of a job."""

    def _mark_due(self, due: Due) -> None:
        self._due = max(self._due, due)

    def _send_maps(self) -> None:
        self._map_sent, self._maps_due = self.shards.version, False
        self._instructions += [self.shards.update_for(node) for node in self.members.present.values()]

    def _reconcile(self, now_s: float) -> None:
        """Issue what the facts lack: maps, loads, moves, replicas and tasks, as far as events have changed what is due.

        Notices and joins are collected for a short time, and then planned for together.
        """
        if self.state in ENDED:
            return
        may_leave = self.members.settle(self._busy)
        if self._maps_due and (may_leave or not self.shards.moving):
            # Servers redirect what comes to them for shards that have moved; one that may leave does not for long.
            self._send_maps()
        if self.departures.notices.take(now_s) | self._joins.due(now_s):
            self._mark_due(Due.NODES)
        if self._due == Due.NODES:
            self._plan()
        if self._end_work(now_s):  # planned for first, so that its partitions go to their heirs
            self._mark_due(Due.NODES)
            self._plan()
        due, self._due = self._due, Due.NOTHING
        if due >= Due.SHARDS:
            self._begin(now_s)
            self._adapt(now_s)
        if due >= Due.TASKS:
            self._dispatch(now_s)

    def _end_at(self, clock: int) -> None:
        """Begin no clock after `clock`; the first clock is always completed, since without one there is no model."""
        self.stopping.end_at(max(1, clock))

    def _end_without_model(self, now_s: float) -> None:
        """End a job whose stop was requested if there is nothing to save."""
        left = self._begun or self._recovery.restored is not None or self.checkpoints.under_way is not None
        if not left and self.stopping.stop_reason is not None:
            self._end(summary(self, now_s) | {"lost_micro_tasks": 0})

    def _end(self, result: dict[str, object], reason: str = "") -> None:
        """End with `result`; its `stopped`, which the manifest also holds, decides between stopped and finished."""
        stopped = result.get("stopped")
        self.result, self.lost_micro_tasks = result, 0
        self.members.settle(lambda name: False)  # nothing is served from now on
        self.state, self.reason = ("finished", reason) if stopped is None else ("stopped", str(stopped))

    def _gather(self, now_s: float) -> None:
        assert self.tasks is not None
        assert self.config is not None
        self.state, self.reason = "running", "saving the model"
        self._saving = Saving(
            GatherModel(
                self.config,
                self.tasks.common,
                self.shards.owners,
                summary(self, now_s),
                self.tasks.n_updates,
                self.tasks.states.at(self.tasks.common),
            )
        )
        self._instructions.append(self._saving.instruction)

    def _save_checkpoint(self, now_s: float) -> None:
        """Begin a checkpoint, if one is due."""
        if self.training and not self.shards.opening and self._saving is None:
            self._instructions += self._recovery.keep(now_s, lambda clock: summary(self, now_s, clock))

    def _begin(self, now_s: float) -> None:
        """Open the shards when enough nodes are present; wait for nodes that still load, up to `start_patience_s`.

        After a loss the complete reliable tier is not waited for.
        """
        if self.config is None or self.asked_s is None or self._begun or self.shards.opening:
            return
        again = self.progress.started_s is not None
        if self.stopping.ending and self._recovery.restored is None and self.checkpoints.under_way is not None:
            return  # that checkpoint is about to become the model to save
        if self.members.cannot_serve and not again:
            raise CannotContinue(f"too few nodes can serve: {self.members.quarantined}")
        if self._reopen_s is not None and now_s < self._reopen_s:
            return
        patient = now_s - self.asked_s < self.config.start_patience_s
        servers = self.members.servers(patient, few=again and not patient)
        if servers:
            self.reason, self._reopen_s = "opening the shards", None
            self._instructions += self.tiers.open(self.config, servers, self._recovery.restored)

    def _continue_without_quarantined(self) -> None:
        """Continue without the quarantined nodes; fail when there are no others and none is awaited."""
        if self.members.cannot_load:
            raise CannotContinue(f"no node can load: {self.members.quarantined}")
        if not self._begun and not self.members.in_state("joining", "ready"):
            self.reason = f"waiting for a node that can load ({self.members.quarantined})"
        self._mark_due(Due.NODES)

    def _end_work(self, now_s: float) -> bool:
        """End the work of leaving nodes whose time has come; return whether there are any.

        What still runs on a draining node after its deadline is given up.
        """
        if self.tasks is None:
            return False
        ended = self.departures.end_work(self.tasks, now_s)
        overdue = self.members.overdue(now_s)
        for name in overdue:
            self.tasks.give_up(name)
        if ended or overdue:
            self.members.settle(self._busy)
        return ended

    def _adapt(self, now_s: float) -> None:
        """Move shards and replicas to where they should be; not while the model is gathered."""
        config, members, tasks = self.config, self.members, self.tasks
        if not self._begun or self._saving is not None or config is None or tasks is None:
            return
        last = self.stopping.last_clock
        over = last is not None and tasks.common >= last  # gathered from leaving nodes, the model might be lost
        stay = (
            bool(self.departures.notices.size) and not over
        )  # the next notice may be for a node that shards would go to
        if not members.in_state("leaving", "draining"):
            stay = self._joins.may_serve_soon(now_s, bool(members.in_state("joining")))
        serving_on = frozenset() if over else self.departures.serving_on(tasks, now_s)
        self._instructions += self.tiers.adapt(config, members, tasks.common, now_s, serving_on, stay, tasks.states)

    def _busy(self, name: str) -> bool:
        if self.tasks is None:
            return False
        states = self.tasks.states
        has_states = states.held_at(self.members.nodes[name].address) > 0
        is_needed = self.shards.serves(name) or has_states or self.tiers.awaits_copies(name, self.members, states)
        return is_needed or self.tasks.running_on(name) > 0

    def _mark_nodes_due(self) -> None:
        """Mark the nodes as due; if many load, they are planned for together, at the next tick."""
        if len(self.members.index.by_name("joining")) >= MANY_LOAD:
            self._plan_due = True
        else:
            self._mark_due(Due.NODES)

    def _plan(self) -> None:
        """Choose the stage for the present nodes, and which node works on what in it."""
        if self._begun and self.departures.notices.size:  # nodes that get a notice next must not start to load
            self.members.switch()
            return
        self._plan_due = False
        if self.config is not None and self._begun:
            self.tiers.choose_stage(self.config, self.members)
        self._replan()

    def _replan(self) -> None:
        """Bring the placement in line with the nodes; during a rollback no node is instructed to load.

        More nodes may be lost along with the first: loads planned for one loss at a time are wasted after the next.
        """
        self._withhold()
        if self._begun and self.shards.opening:
            self.members.take_over()
        else:
            have_states = self.tasks is not None and bool(self.tasks.states)
            self._instructions += self.members.replan(self._begun, have_states)

    def _recover(self, reason: str, now_s: float) -> None:
        """Roll back to the last common clock of which every shard is available."""
        assert self.config is not None
        self._mark_due(Due.NODES)
        if self.progress.started_s is None:  # nothing was done yet
            self.tiers.abandon(self.members)
            return
        self.tiers.choose_stage(self.config, self.members)
        self._reopen_s = None
        instructions = self._recovery.roll_back_to_replicas(reason) if self._begun else None
        if instructions is None:
            self._roll_back_to_checkpoint(reason, now_s)
        else:
            self._after_rollback()
            self._instructions += instructions

    def _roll_back_to_checkpoint(self, reason: str, now_s: float) -> None:
        """Roll back to the last checkpoint, or to the beginning, as soon as a node can serve."""
        self._recovery.roll_back_to_checkpoint(reason)
        self._begun, self.asked_s = False, now_s
        self._after_rollback()
        self.state = "waiting"
        self._end_without_model(now_s)
        self._mark_due(Due.NODES)

    def _open_anew(self, shards: Sequence[int], error: str, again: bool, now_s: float) -> None:
        """Have shards that could not be opened opened again from their replicas, if that may help, or a checkpoint."""
        why = f"shards {tuple(shards)} could not be opened"
        if self._begun and (self._not_opened >= MOST_FROM_REPLICAS or not again):
            self._not_opened = 0
            self._roll_back_to_checkpoint(f"{why}: {error}", now_s)
            return
        self._not_opened += 1
        if self._not_opened >= MOST_NOT_OPENED:
            raise CannotContinue(f"{why} {self._not_opened} times: {error}")
        self._reopen_s = now_s + min(_REOPEN_S * 2.0 ** (self._not_opened - 1), _MOST_REOPEN_S)
        if self._begun:
            self.reason = f"{why} and are opened again: {error}"
        else:
            self._roll_back_to_checkpoint(f"{why}: {error}", now_s)

    def _give_up_opening(self, now_s: float) -> None:
        """Treat shards whose opening has taken too long as not opened: a node may be stuck."""
        generation = self.shards.generation
        if not self.shards.opening or self._reopen_s is not None:
            self._opening = None
        elif self._opening is None or self._opening[0] != generation:
            self._opening = generation, now_s
        elif now_s >= self._opening[1] + OPEN_S:
            unopened = self.shards.unopened
            error = f"node {self.shards.owners[unopened[0]].node} has not reported in {OPEN_S:g} s"
            self._open_anew(unopened, error, False, now_s)

    def _reopen(self, now_s: float) -> None:
        """Open the shards from their replicas again, after the pause that follows a failure; nothing more is lost."""
        if not self._begun or self._reopen_s is None or now_s < self._reopen_s or self.config is None:
            return
        self._reopen_s = None
        restored = self.tiers.restore_from_replicas(self.config, self.members)
        if restored is None:
            self._roll_back_to_checkpoint("replicas of shards were lost", now_s)
        else:
            self._instructions += restored[1]

    def _after_rollback(self) -> None:
        if self._late_stop is not None and self.tasks is not None:
            self.stopping.stop_reason = self._late_stop
            self._end_at(self.tasks.common)
        self.stopping.roll_back()
        if self.stopping.ending and self.tasks is not None:
            self._end_at(self.tasks.common)  # a job that is to end does not repeat the lost clocks
        self._count_clocks()
        self._saving, self.reason = None, self.rollbacks[-1][1]
        self.tiers.interrupt()

    def _advance(self, now_s: float) -> bool:
        """Commit the groups that are complete, and inform the driver; return whether there are any."""
        tasks, driver = self.tasks, self.driver
        if tasks is None or driver is None:
            return False
        before = tasks.common
        while tasks.commit_next():
            if tasks.common in driver.evaluations:
                self.history.evaluating.request(tasks.common)
            complete = driver.clock
            driver.committed(tasks.common)
            counted = not driver.counts_clocks or driver.clock > complete
            self.progress.close(tasks.common, driver.clock if counted else None, now_s, self.stage)
            self._check_loss()
            if not driver.counts_clocks:  # else groups are not alike
                self._measure(tasks.common)
        if driver.end is not None:
            group, reason = driver.end
            self.stopping.converge_at(group if group > tasks.common else tasks.last_begun, reason)
        elif tasks.common > before:
            passes = driver.passes(tasks.common, self.progress.examples)
            if reason := self.stopping.reached(self.progress.losses, passes, self.history.evaluating.points):
                self.stopping.converge_at(max(1, tasks.last_begun), reason)
        self._count_clocks()
        self._end_after_passes()
        replicated = self.tiers.backups.oldest_clock
        driver.forget_before(tasks.common if replicated is None else min(replicated, tasks.common))
        if tasks.common > before:
            self._look_at_memory()
        return tasks.common > before

    def _check_loss(self) -> None:
        """Fail if the loss of the last clock is not finite: each part of it may be."""
        clock, loss = self.progress.losses[-1] if self.progress.losses else (0, 0.0)
        if self.config is not None and self.config.finite and not isfinite(loss):
            raise CannotContinue(f"the loss of clock {clock} is {loss}: {WANT_FINITE}")

    def _count_clocks(self) -> None:
        if self.driver is not None and self.driver.counts_clocks:
            self.stopping.complete(*self.progress.last_complete)

    def _end_after_passes(self) -> None:
        """Set the last clock of a job with a number of passes: the first dispatched one with that many."""
        tasks, driver, config = self.tasks, self.driver, self.config
        if config is None or config.passes is None or tasks is None or driver is None:
            return
        for group in range(max(1, tasks.common), tasks.sealed + 1):
            passes = driver.passes(group, self.progress.examples)
            if passes is not None and passes >= config.passes:
                self.stopping.passes_made_at(max(group, tasks.last_begun))
                return

    def _measure(self, clock: int) -> None:
        """Note the time of a committed clock; at the next tick a faster stage, or number of servers, is chosen."""
        if self.config is None:
            return
        took = ClockTime(self.progress.clock_seconds[-1], self.progress.kernel_s(clock))
        self._plan_due |= self.tiers.note_clock(self.config, self.members, took)

    def _look_at_memory(self) -> None:
        """Note the memory of the nodes at a common clock; offer nodes for release and merge servers by it."""
        assert self.config is not None
        working = self.members.in_state("ready", "leaving")
        counted = memory_of(working, self.members.placement.by_owner)
        self.history.note_memory(self.progress.last_complete[0], counted, len(working))
        if self.config.scale_in:
            self.scale_in.look(self.tiers.holding(self.config, self.members, counted))
            self.tiers.most_servers = self.scale_in.most_servers

    def _dispatch(self, now_s: float) -> None:
        """Dispatch the tasks that may run. At the end: gather the model."""
        tasks, driver, dispatcher, limits = self.tasks, self.driver, self._dispatcher, self.stopping
        if not self._begun or tasks is None or self._saving is not None or self.shards.opening:
            return
        assert driver is not None
        assert dispatcher is not None
        ready = self.departures.may_begin(now_s)
        self._note_unowned(ready)
        if self._withhold():
            self._replan()
        if driver.absent:
            self._return_partitions(ready)
        self._advance(now_s)  # groups may be complete without partitions that are absent
        working = bool(ready) or bool(tasks.running)
        if limits.ending and not working:  # no node is left to complete the clock under way
            if not tasks.common and limits.stop_reason is not None:
                self._end(summary(self, now_s) | {"lost_micro_tasks": 0})
                return
            self._end_at(tasks.common)
        if limits.last_clock is not None and tasks.common >= limits.last_clock:
            self._adapt(now_s)  # move the shards of leaving nodes
            if not self.shards.moving:
                self._gather(now_s)
            return
        if tasks.idle and not driver.absent:
            raise CannotContinue(
                f"the driver dispatched nothing more, or left group {tasks.sealed + 1} open: {_TO_END}"
            )
        self.state = "running" if working and not tasks.idle else "waiting"
        if not working:
            quarantined = self.members.quarantined and f" ({self.members.quarantined})"
            self.reason = f"no node is left to work{quarantined}; training continues when one joins"
        elif tasks.idle:
            self.reason = f"the driver waits for partitions {format_ranges(driver.absent)}, whose nodes were lost"
        else:
            self.reason = self.progress.trouble
        placement = self.members.placement
        self._instructions += [
            RecallTasks(name, self.members.nodes[name].address, tuple(clocks))
            for name, clocks in dispatcher.recalls(placement, self.departures.completing(now_s)).items()
        ]
        self._instructions += dispatcher.states_to_take(placement, ready, self.members.in_state("draining"))
        self._instructions += dispatcher.orders(
            placement, ready, limits.limit, self._map_sent, self.shards.generation, self.departures.ending(now_s)
        )

    def _note_unowned(self, ready: Mapping[str, NodeRecord]) -> None:
        """Report partitions to the driver that have no node, since no node may own more partitions."""
        assert self.driver is not None
        unowned = frozenset(self.members.placement.by_owner.get(None, ()) if ready else ())
        if new := unowned - self._unowned:
            self.driver.vanished(new)
        self._unowned = unowned

    def _withhold(self) -> bool:
        """Let the driver say which partitions stay without a node; return whether these are others than before."""
        driver, members = self.driver, self.members
        absent = frozenset() if driver is None else frozenset(driver.absent)
        before = members.withheld
        members.withheld = absent
        if absent and driver is not None:
            members.withheld = absent - driver.restarts(members.room_for(len(absent)))
        return members.withheld != before

    def _return_partitions(self, ready: Mapping[str, NodeRecord]) -> None:
        """Report omitted partitions to the driver once a working node has loaded their input."""
        assert self.driver is not None
        owner = self.members.placement.owner
        back = [e for e in self.driver.absent if (name := owner[e]) is not None and name in ready]
        self.driver.returned([e for e in back if e in ready[owner[e] or ""].holds])
