"""Algorithm 2: batch gradient descent on partitions that vanish and return, as a pure state machine.

`ElasticMaster.request` says what to broadcast, `ElasticMaster.receive` takes what was reduced. Each step counts every
partition once: by its gradient, or by that of the round before its loss, which stays until it is back.

Source: "Towards Resource-Elastic Machine Learning", Algorithm 2.
Differs: a loss is undone at the same model (line 16 in its order); the gradient that is stored with the model of the
round before is then that of the survivors, or a loss in the next round would be approximated wrongly. A loss in round 0
has no approximation. The approximation of an entry is taken out before the step of the first round to which all its
partitions contribute, and not when they are restarted: they might vanish again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from proteus_spot.psengine.apps.bgd.directions import DescentRule
from proteus_spot.psengine.apps.bgd.messages import Reply, Request, Vanished
from proteus_spot.psengine.apps.bgd.roster import Approximation, Missing, Roster
from proteus_spot.psengine.apps.bgd.steps import FixedStep, LineSearch, StepRule

F64 = NDArray[np.float64]


@dataclass(frozen=True)
class DescentStep:
    """A round that ended in a step.

    Attributes
    ----------
    contributors : frozenset of int
        The partitions that took part by their gradients.
    standing : tuple of Vanished
        Those that took part by their approximations.
    gradient : shape of the model
        Of the objective that was descended, at the model before the step.
    objective : float
        Its value at the model before the step; approximations count without their constants.
    loss : float
        The summed losses of the contributors there.
    step : float
    trials : int
        Trial points of the line search.
    """

    round_number: int
    contributors: frozenset[int]
    standing: tuple[Vanished, ...]
    gradient: F64
    objective: float
    loss: float
    step: float
    trials: int


@dataclass
class _Round:
    """A round between its reduced gradient and its step."""

    contributors: frozenset[int]
    standing: tuple[Vanished, ...]
    partial: F64  # the contributors' sum
    gradient: F64
    approximated: F64 | float
    loss: float
    objective: float
    direction: F64
    slope: float
    search: LineSearch | None = None
    trials: int = 0


class ElasticMaster:
    """The master of Algorithm 2, and of its baselines.

    Parameters
    ----------
    n_partitions : int
    model : float64, any shape
        The first model; not modified.
    direction : DescentRule
    step : StepRule
    l2 : float or array that broadcasts to the model
        Weight of the penalty l2 / 2 * model^2.
    missing : see `Roster`.
    approximation : str
        ``kept``: from the sums that the tree keeps, where they say it, else as ``redone``: lines 9-12.
    on_step, on_loss : callable, optional
        Called with each step (`DescentStep`), and with each loss (`Vanished`).

    Attributes
    ----------
    model : the current model.
    rounds : int
        Rounds that ended in a step.
    redone_rounds : int
        Rounds that a loss voided, and that were done again.
    roster : Roster
        The queue of vanished partitions, and those that are in the stored gradient.
    previous_model : the model of the round before.
    stored_gradient : shape of the model, or None
        Summed gradient at `previous_model`; None before the first step.
    """

    def __init__(
        self,
        n_partitions: int,
        model: F64,
        direction: DescentRule,
        step: StepRule,
        *,
        l2: float | F64 = 0.0,
        missing: Missing = "approximate",
        approximation: Approximation = "kept",
        on_step: Callable[[DescentStep], None] | None = None,
        on_loss: Callable[[Vanished], None] | None = None,
    ) -> None:
        self.model = model
        self.rounds = self.redone_rounds = 0
        self.roster: Roster[Vanished] = Roster(n_partitions, missing)
        self._direction, self._step, self._l2 = direction, step, l2
        self._approximation = approximation
        self._on_step, self._on_loss = on_step, on_loss
        self.previous_model = model
        self.stored_gradient: F64 | None = None
        self._asked: Request | None = None
        self._round: _Round | None = None
        self._lost: frozenset[int] = frozenset()  # to be approximated by the request under way
        self._step_before: float | None = None
        self._follows_step = False
        self._converged: frozenset[int] | None = None  # members of a round that no step improves

    @property
    def finished(self) -> bool:
        """Whether all partitions take part, and no step decreases the objective."""
        return self._converged == self.roster.everyone

    @property
    def is_approximating(self) -> bool:
        """Whether vanished partitions are being approximated: the next request is not of a new round."""
        return bool(self._lost)

    # -- what to ask ----------------------------------------------------------------------------------------------

    def request(self, available: Collection[int]) -> Request | None:
        """Return what to broadcast next; None while it waits for partitions, or once no step decreases the objective.

        Parameters
        ----------
        available : partitions that are known to have a node.
        """
        if self._lost:
            return self._asked
        current = self._round
        if current is not None and current.search is not None:
            request = Request("trial", self.model, current.contributors, current.direction, current.search.trial)
        else:
            asked = self.roster.members(available)
            if not asked & frozenset(available) or (
                self.roster.missing == "stall" and not asked <= frozenset(available)
            ):
                return None
            if asked == self._converged:
                return None
            self._converged = None
            request = Request("gradient", self.model, asked, follows_step=self._follows_step)
            self._follows_step = False
        self._asked = request
        return request

    def restarts(self, available: Collection[int], free: int) -> tuple[int, ...]:
        """Return the partitions to bring up on `free` nodes, see `Roster.restarts`."""
        return self.roster.restarts(available, free)

    # -- what came back -------------------------------------------------------------------------------------------

    def receive(self, reply: Reply) -> None:
        """Take the reduced answer to the last request."""
        request = self._asked
        assert request is not None
        lost = request.partitions - reply.partitions
        if request.kind == "kept":
            self._receive_kept(reply)
        elif request.kind == "previous":
            self._receive_previous(reply, lost)
        elif self._is_voided(lost, request.kind == "trial"):
            self._void(lost)
        elif request.kind == "trial":
            self._receive_trial(reply)
        else:
            self._receive_gradient(reply)

    def _is_voided(self, lost: frozenset[int], in_search: bool) -> bool:
        for partition in self.roster.without_approximation(lost):  # each returns by itself
            self._enqueue(Vanished(frozenset([partition]), None, self.rounds))
        return self.roster.is_voided(lost, in_search)

    def _enqueue(self, entry: Vanished) -> None:
        self.roster.queue = (*self.roster.queue, entry)
        if self._on_loss is not None:
            self._on_loss(entry)

    def _void(self, lost: frozenset[int]) -> None:
        self.redone_rounds += 1
        self._round = None
        self._lost = self.roster.to_approximate(lost)
        if self._lost and self._approximation == "kept":
            self._asked = Request("kept", self.previous_model, self._lost)
        elif self._lost:
            self._ask_survivors()

    def _ask_survivors(self) -> None:
        self._asked = Request("previous", self.previous_model, self.roster.stored - self._lost)

    def _receive_kept(self, reply: Reply) -> None:
        if reply.gradient is None or reply.partitions != self._lost:
            self._ask_survivors()
            return
        assert self.stored_gradient is not None
        self._approximate(reply.gradient, self.stored_gradient - reply.gradient)

    def _receive_previous(self, reply: Reply, lost: frozenset[int]) -> None:
        assert self.stored_gradient is not None
        self._lost |= lost
        survivors = np.zeros_like(self.stored_gradient) if reply.gradient is None else reply.gradient
        self._approximate(self.stored_gradient - survivors, survivors)

    def _approximate(self, gradient: F64, survivors: F64) -> None:
        """Let `gradient` stand for the lost partitions; the stored gradient is that of the survivors from now on."""
        self._enqueue(Vanished(self._lost, gradient, self.rounds))
        self.stored_gradient, self.roster.stored = survivors, self.roster.stored - self._lost
        self._lost = frozenset()

    # -- from a gradient to a step --------------------------------------------------------------------------------

    def _receive_gradient(self, reply: Reply) -> None:
        if reply.gradient is None:
            return  # no partition is present; the next request waits
        standing = self.roster.standing(reply.partitions)
        gradients = [entry.gradient for entry in standing if entry.gradient is not None]
        approximated: F64 | float = sum(gradients[1:], gradients[0]) if gradients else 0.0
        gradient = reply.gradient + approximated + self._l2 * self.model
        objective = reply.loss + self._penalty(self.model, approximated)
        identity = (reply.partitions, tuple(id(entry) for entry in standing))
        direction = self._direction.direction(self.model, gradient, identity)
        slope = float(np.vdot(gradient, direction))
        if not slope < 0.0:
            self._direction.reset()
            direction = -gradient
            slope = -float(np.vdot(gradient, gradient))
        self._round = _Round(
            reply.partitions,
            standing,
            reply.gradient,
            gradient,
            approximated,
            reply.loss,
            objective,
            direction,
            slope,
        )
        if slope == 0.0:
            self._converge()
        elif isinstance(self._step, FixedStep):
            self._accept(self._step.at(self.rounds))
        else:
            self._search(is_scaled=self._direction.is_scaled())

    def _penalty(self, model: F64, approximated: F64 | float) -> float:
        """Return the part of the objective that the master knows: approximations without constants, and the penalty."""
        return float(np.sum(approximated * model)) + 0.5 * float(np.sum(self._l2 * model * model))

    def _search(self, *, is_scaled: bool) -> None:
        current = self._round
        assert current is not None
        assert not isinstance(self._step, FixedStep)
        current.search = self._step.search(
            current.objective, current.slope, before=self._step_before, is_scaled=is_scaled
        )
        self._continue_search()

    def _receive_trial(self, reply: Reply) -> None:
        current = self._round
        assert current is not None
        search = current.search
        assert search is not None
        point = self.model + search.trial * current.direction
        known = np.sum((current.approximated + self._l2 * point) * current.direction)
        search.receive(reply.loss + self._penalty(point, current.approximated), reply.slope + float(known))
        current.trials += 1
        self._continue_search()

    def _continue_search(self) -> None:
        current = self._round
        assert current is not None
        search = current.search
        assert search is not None
        if search.accepted is not None:
            self._accept(search.accepted)
        elif search.failed and self._direction.is_scaled():
            self._direction.reset()
            current.direction = -current.gradient
            current.slope = -float(np.vdot(current.gradient, current.gradient))
            self._search(is_scaled=False)
        elif search.failed:
            self._converge()

    def _converge(self) -> None:
        assert self._round is not None
        self._converged, self._round = self._round.contributors, None

    def _accept(self, step: float) -> None:
        current = self._round
        assert current is not None
        self.previous_model, self.stored_gradient = self.model, current.partial
        self.roster.stored = current.contributors
        self.model = self.model + step * current.direction
        self.roster.queue = current.standing
        if not self._direction.is_scaled():
            self._step_before = step
        self._round, self._follows_step = None, True
        if self._on_step is not None:
            self._on_step(
                DescentStep(
                    self.rounds,
                    current.contributors,
                    current.standing,
                    current.gradient,
                    current.objective,
                    current.loss,
                    step,
                    current.trials,
                )
            )
        self.rounds += 1
