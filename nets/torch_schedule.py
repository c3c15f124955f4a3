"""The rates of each step, as a scheduler of torch sets them; the workers of a process are at different steps."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch

#: Makes an optimiser, and the scheduler of it; None: the rates stay.
Make = Callable[[], tuple[torch.optim.Optimizer, Any]]
#: Steps whose rates are remembered.
_REMEMBERED = 4096


class RateSchedule:
    """Rates by step.

    Parameters
    ----------
    make : callable
        Its optimiser takes no steps.
    """

    def __init__(self, make: Make) -> None:
        self._make = make
        self._begin()

    def set(self, optimizer: torch.optim.Optimizer, step: int) -> None:
        """Give an optimiser the rates of a step."""
        if self._scheduler is None:
            return
        if step not in self._rates:
            self._go_to(step)
        for group, rates in zip(optimizer.param_groups, self._rates[step], strict=True):
            group.update(rates)

    def _begin(self) -> None:
        self._optimizer, self._scheduler = self._make()
        self._at = 0
        self._rates = {0: self._now()}

    def _now(self) -> list[dict[str, Any]]:
        return [
            {name: value for name, value in group.items() if name != "params"} for group in self._optimizer.param_groups
        ]

    def _go_to(self, step: int) -> None:
        if step < self._at:
            self._begin()
        with warnings.catch_warnings():  # torch warns of a scheduler whose optimiser takes no steps
            warnings.simplefilter("ignore", UserWarning)
            while self._at < step:
                self._scheduler.step()
                self._at += 1
                self._rates[self._at] = self._now()
                self._rates.pop(self._at - _REMEMBERED, None)
