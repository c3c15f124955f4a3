"""Elastic batch gradient descent as a driver: scalars and sets here, vectors in tables.

Each step counts every partition once: by its gradient, or by that of the round before its loss, which stands for it
until it is back.

A round is a few commit groups. ``gradient``: each member adds its gradient at `weights` to a table `gradient`, which
holds the sum of one group. ``direction``: one partition, the leader, writes `direction` and returns the slope.
``trial``: the contributors return loss and slope at a step. ``step``: the leader moves the model. After a loss:
``kept``, in which the leader stores the sum that the servers keep of the lost partitions in a slot; if they have none,
``previous``, the survivors' gradients at the model before, and ``approximate``, in which the leader stores what is
missing.

There are two tables `gradient`: one has the sums of the last round that ended in a step, so that voided rounds and
second reduces do not replace them.

Nodes are taken away in the middle of a group: tasks that are not completed then are withdrawn, and the group is sealed
with the rest, so that the contributors are the partitions that completed theirs.

Source: "Towards Resource-Elastic Machine Learning", Algorithm 2.
Differs: a loss is undone at the same model (line 16 in its order); the gradient that is stored with the model of the
round before is then that of the survivors, or a loss in the next round would be approximated wrongly. A loss in round 0
has no approximation. The approximation of an entry is taken out before the step of the first round to which all its
partitions contribute, and not when they are restarted: they might vanish again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Literal

from proteus_spot.psengine.apps.bgd.roster import Approximation, Missing, Roster, Slot
from proteus_spot.psengine.apps.bgd.steps import FixedStep, LineSearch, StepRule
from proteus_spot.psengine.drivers.interface import Dispatcher, Done, Task

Phase = Literal["gradient", "kept", "previous", "direction", "trial", "step", "approximate"]
#: Phases with one task.
_OF_THE_LEADER = ("direction", "step", "kept", "approximate")


@dataclass(frozen=True)
class DirectionFigures:
    """What the leader returns of a direction.

    Attributes
    ----------
    slope : float
        Of the objective along the direction.
    terms : (float, float, float)
        The part of the objective that needs no examples, at a step t: terms[0] + terms[1] t + terms[2] t^2.
    has_pair : bool
        Whether a pair of L-BFGS was formed and stored.
    """

    slope: float
    terms: tuple[float, float, float]
    has_pair: bool = False


@dataclass
class _State:
    """All that a snapshot holds."""

    roster: Roster
    available: frozenset[int]
    phase: Phase = "gradient"
    group: int = 0  # the open one, or the last one
    is_open: bool = False
    is_waiting: bool = False  # for partitions that return
    asked: frozenset[int] = frozenset()
    pending: frozenset[int] = frozenset()
    results: dict[int, Any] = field(default_factory=dict)
    leader_args: Any = None
    rounds: int = 0
    redone: int = 0
    second_reduces: int = 0
    not_approximated: int = 0
    remarks: tuple[str, ...] = ()
    table: int = 0  # the table `gradient` that the round adds to; the other one has those of the last step
    contributors: frozenset[int] = frozenset()
    standing: tuple[Slot, ...] = ()
    loss: float = 0.0
    lost: frozenset[int] = frozenset()
    steepest: bool = False  # the direction of this round is the negative gradient
    figures: DirectionFigures = DirectionFigures(0.0, (0.0, 0.0, 0.0))
    search: LineSearch | None = None
    step_before: float | None = None
    pairs: tuple[int, ...] = ()  # numbers of the stored ones, from the oldest
    last_objective: Any = None  # identity of the objective of the last direction
    converged: frozenset[int] | None = None  # members of a round that no step improves
    ended: bool = False


class ElasticDescentDriver:
    """The driver of Algorithm 2; the baselines that wait or leave out are `missing`.

    Parameters
    ----------
    step : StepRule
    memory : int
        Pairs of L-BFGS; 0: steepest descent.
    missing : see `Roster`.
    clocks : int or None
        The number of accepted steps after which the job ends.
    approximation : str
        ``kept``: from the sums that the servers keep, where they say it, else as ``redone``: from a second sum of the
        survivors (lines 9-12). The servers have the part of the inner nodes of the paper's tree.
    """

    def __init__(
        self,
        step: StepRule,
        memory: int,
        missing: Missing,
        clocks: int | None,
        approximation: Approximation = "kept",
    ) -> None:
        self.clocks = clocks
        self._approximation = approximation
        self._step, self._memory, self._missing = step, memory, missing
        self._state = _State(Roster(0, missing), frozenset())

    @property
    def clock(self) -> int:
        """The number of accepted steps."""
        return self._state.rounds

    def figures(self) -> dict[str, float]:
        """Return counts: rounds done again, second sums of survivors, and partitions that are away, or were.

        `approximated` are the partitions for which an approximation stands now, `not_approximated` those that were lost
        before the first step, for which nothing stood.
        """
        slots = [entry for entry in self._state.roster.queue if entry.number is not None]
        return {
            "redone_rounds": self._state.redone,
            "second_reduces": self._state.second_reduces,
            "approximated": sum(len(entry.partitions) for entry in slots),
            "not_approximated": self._state.not_approximated,
        }

    def remarks(self) -> Sequence[str]:
        """Return a line for each loss of partitions that have no approximation."""
        return self._state.remarks

    # -- of the controller ----------------------------------------------------------------------------------------

    def start(self, to: Dispatcher, partitions: int, seed: int) -> None:
        """Begin the first round."""
        del seed
        self._state = _State(Roster(partitions, self._missing), frozenset(range(partitions)))
        self._begin_round(to)

    def completed(self, to: Dispatcher, done: Done) -> None:
        """Note a result; the last one closes the group."""
        state = self._state
        partition = done.task.partition
        if done.task.group != state.group or partition not in state.pending:
            return
        state.pending -= {partition}
        state.results[partition] = done.result
        self._close(to)

    def committed(self, to: Dispatcher, group: int) -> None:
        """Continue with what the group has brought."""
        state = self._state
        if group != state.group or state.is_open or state.ended:
            return
        if state.phase in _OF_THE_LEADER and not state.results:
            self._ask_leader(to, state.phase, state.leader_args)  # it vanished
        else:
            getattr(self, f"_after_{state.phase}")(to)

    def vanished(self, to: Dispatcher, partitions: Collection[int]) -> bool:
        """Continue without these partitions, unless a loss is to stall the descent."""
        state = self._state
        if self._missing == "stall":
            return False
        state.available -= frozenset(partitions)
        state.pending = state.pending.difference(partitions)
        self._close(to)
        return True

    def returned(self, to: Dispatcher, partitions: Collection[int]) -> None:
        """Include partitions again; continue if the descent was waiting for them."""
        state = self._state
        state.available |= frozenset(partitions)
        if state.is_waiting and state.phase in _OF_THE_LEADER:
            self._ask_leader(to, state.phase, state.leader_args)
        elif state.is_waiting:
            self._begin_round(to)

    def restarts(self, absent: frozenset[int], free: int) -> tuple[int, ...]:
        """Return which partitions get a node: entries of the queue first, whole, first in first out (lines 18-20)."""
        roster = self._state.roster
        found = roster.restarts(roster.everyone - absent, free)
        queued = absent & frozenset().union(*(entry.partitions for entry in roster.queue))
        return found if set(found) != queued else (*found, *sorted(absent - queued)[: free - len(found)])

    def next_task(self, partition: int) -> Task | None:
        """Return None: what comes next depends on what the tasks return."""
        del partition
        return None

    def snapshot(self) -> Any:
        """Return the state."""
        return deepcopy(self._state)

    def restore(self, state: Any) -> None:
        """Continue from a state."""
        self._state = deepcopy(state)

    # -- groups ---------------------------------------------------------------------------------------------------

    def _begin(self, to: Dispatcher, phase: Phase, partitions: frozenset[int], args: Any) -> bool:
        """Open a group of tasks of these partitions, as far as they are available; return whether any is."""
        state = self._state
        state.phase, state.asked, state.pending = phase, partitions, partitions & state.available
        state.results = {}
        state.is_open, state.is_waiting = bool(state.pending), not state.pending
        state.group += state.is_open
        for partition in sorted(state.pending):
            to.dispatch(Task(partition, state.group, (phase, args)))
        return state.is_open

    def _ask_leader(self, to: Dispatcher, phase: Phase, args: Any) -> None:
        """Give a task to the first available partition; wait if there is none."""
        self._state.leader_args = args
        self._begin(to, phase, frozenset(sorted(self._state.available)[:1]), args)

    def _close(self, to: Dispatcher) -> None:
        state = self._state
        if state.is_open and not state.pending:
            state.is_open = False
            to.seal(state.group)

    # -- rounds ---------------------------------------------------------------------------------------------------

    def _begin_round(self, to: Dispatcher) -> None:
        state = self._state
        state.search, state.steepest, state.phase = None, self._memory == 0, "gradient"
        asked = state.roster.members(state.available)
        if asked != state.converged:
            state.converged = None
            self._begin(to, "gradient", asked, state.table)
        elif asked == state.roster.everyone:
            self._finish(to, "no step decreases the objective")
        else:
            state.is_waiting = True

    def _after_gradient(self, to: Dispatcher) -> None:
        state = self._state
        contributors = frozenset(state.results)
        if self._voids(to, state.asked - contributors):
            return
        if not contributors:
            self._begin_round(to)
            return
        state.contributors, state.standing = contributors, state.roster.standing(contributors)
        state.loss = sum(state.results[partition] for partition in sorted(contributors))
        self._ask_direction(to)

    def _ask_direction(self, to: Dispatcher) -> None:
        state = self._state
        objective = (state.contributors, state.standing)
        pair = None
        if not state.steepest and objective == state.last_objective:
            pair = state.pairs[0] if len(state.pairs) == self._memory else len(state.pairs)
        state.last_objective = objective
        kept = tuple(number for number in state.pairs if number != pair)
        slots = tuple(entry.number for entry in state.standing if entry.number is not None)
        self._ask_leader(to, "direction", (state.table, slots, state.steepest, kept, pair))

    def _after_direction(self, to: Dispatcher) -> None:
        state = self._state
        (figures,) = state.results.values()
        state.figures = figures
        (_, _, _, kept, pair) = state.leader_args
        if not state.steepest:
            state.pairs = (*kept, pair) if figures.has_pair else kept
        if figures.slope == 0.0:
            self._converge(to)
        elif not figures.slope < 0.0:
            self._descend_steepest(to)
        elif isinstance(self._step, FixedStep):
            self._ask_step(to, self._step.at(state.rounds))
        else:
            value = state.loss + figures.terms[0]
            is_scaled = bool(state.pairs) and not state.steepest
            state.search = self._step.search(value, figures.slope, before=state.step_before, is_scaled=is_scaled)
            self._continue_search(to)

    def _descend_steepest(self, to: Dispatcher) -> None:
        """Forget the pairs, and try the negative gradient."""
        state = self._state
        state.pairs, state.steepest, state.search = (), True, None
        state.last_objective = None
        self._ask_direction(to)

    def _ask_trial(self, to: Dispatcher) -> None:
        state = self._state
        assert state.search is not None
        if not self._begin(to, "trial", state.contributors, state.search.trial):
            self._voids(to, state.contributors)

    def _after_trial(self, to: Dispatcher) -> None:
        state, search = self._state, self._state.search
        assert search is not None
        if self._voids(to, state.asked.difference(state.results)):
            return
        at, (constant, linear, square) = search.trial, state.figures.terms
        found = [state.results[partition] for partition in sorted(state.results)]
        loss, slope = sum(loss for loss, _ in found), sum(slope for _, slope in found)
        search.receive(loss + constant + linear * at + square * at * at, slope + linear + 2.0 * square * at)
        self._continue_search(to)

    def _continue_search(self, to: Dispatcher) -> None:
        state, search = self._state, self._state.search
        assert search is not None
        if search.accepted is not None:
            self._ask_step(to, search.accepted)
        elif not search.failed:
            self._ask_trial(to)
        elif state.steepest or not state.pairs:
            self._converge(to)
        else:
            self._descend_steepest(to)

    def _ask_step(self, to: Dispatcher, step: float) -> None:
        state = self._state
        if state.steepest or not state.pairs:
            state.step_before = step
        freed = (entry.number for entry in state.roster.queue if entry not in state.standing)
        self._ask_leader(to, "step", (state.table, step, tuple(number for number in freed if number is not None)))

    def _after_step(self, to: Dispatcher) -> None:
        state = self._state
        state.roster.stored, state.roster.queue = state.contributors, state.standing
        state.rounds += 1
        state.table = 1 - state.table
        if self.clocks is not None and state.rounds >= self.clocks:
            self._finish(to, f"{state.rounds} rounds")
        else:
            self._begin_round(to)

    def _converge(self, to: Dispatcher) -> None:
        state = self._state
        state.converged = state.contributors
        self._begin_round(to)

    def _finish(self, to: Dispatcher, reason: str) -> None:
        state = self._state
        state.ended = True
        to.finish(state.group, f"{reason}; redone rounds: {state.redone}")

    # -- losses ---------------------------------------------------------------------------------------------------

    def _voids(self, to: Dispatcher, lost: frozenset[int]) -> bool:
        """If a loss voids the round, begin what follows from it, and return True."""
        state = self._state
        left_out = state.roster.without_approximation(lost)
        for partition in left_out:
            self._enqueue(Slot(frozenset([partition]), None, state.rounds))
        if left_out:
            state.not_approximated += len(left_out)
            which = ", ".join(map(str, left_out))
            line = f"round {state.rounds}: partitions {which} are away and were in no step yet: they are left out"
            state.remarks = (*state.remarks, f"{line} until they are back, without an approximation")
        if not state.roster.is_voided(lost, state.phase == "trial"):
            return False
        state.redone += 1
        state.lost = state.roster.to_approximate(lost)
        if not state.lost:
            self._begin_round(to)
        elif self._approximation == "kept":
            self._ask_leader(to, "kept", (self._free_slot(), 1 - state.table, tuple(sorted(state.lost))))
        else:
            self._ask_survivors(to)
        return True

    def _free_slot(self) -> int:
        roster = self._state.roster
        return min(set(range(len(roster.everyone))) - {entry.number for entry in roster.queue})

    def _after_kept(self, to: Dispatcher) -> None:
        (is_stored,) = self._state.results.values()
        if is_stored:
            self._after_approximate(to)
        else:
            self._ask_survivors(to)

    def _ask_survivors(self, to: Dispatcher) -> None:
        state = self._state
        survivors = state.roster.stored - state.lost
        state.second_reduces += 1
        if not self._begin(to, "previous", survivors, state.table):
            self._ask_approximation(to, survivors)

    def _after_previous(self, to: Dispatcher) -> None:
        state = self._state
        self._ask_approximation(to, state.asked.difference(state.results))

    def _ask_approximation(self, to: Dispatcher, also_lost: frozenset[int]) -> None:
        """Let the leader store what is missing; it is all that is stored if no survivor is left."""
        state = self._state
        state.lost |= also_lost
        is_empty = state.lost >= state.roster.stored
        self._ask_leader(to, "approximate", (self._free_slot(), state.table, is_empty))

    def _after_approximate(self, to: Dispatcher) -> None:
        state = self._state
        self._enqueue(Slot(state.lost, state.leader_args[0], state.rounds))
        state.roster.stored -= state.lost
        state.lost = frozenset()
        self._begin_round(to)

    def _enqueue(self, entry: Slot) -> None:
        self._state.roster.queue = (*self._state.roster.queue, entry)
