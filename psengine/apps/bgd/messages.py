"""What the master of a descent asks of the partitions, and what it receives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]


@dataclass(frozen=True)
class Request:
    """One Broadcast, and the Reduce that answers it.

    Attributes
    ----------
    kind : str
        ``gradient``: losses and gradients at `model`, of a new round. ``previous``: the same at the model of the round
        before, for the approximation of vanished partitions (lines 9-12). ``trial``: losses and slopes at
        `model + step * direction`. ``kept``: the sum that living inner nodes of the tree keep of `partitions`.
    partitions : frozenset of int
        The partitions whose answers are added; the other nodes pass on sums and add nothing.
    follows_step : bool
        Whether the last gradient round ended in a step: inner nodes then keep its sums.
    """

    kind: Literal["gradient", "previous", "trial", "kept"]
    model: F64
    partitions: frozenset[int]
    direction: F64 | None = None
    step: float = 0.0
    follows_step: bool = False


@dataclass(frozen=True)
class Reply:
    """The reduced answers.

    Attributes
    ----------
    partitions : frozenset of int
        The partitions that contributed.
    gradient : shape of the model, or None
        Summed gradients; None of a trial, and where no partition contributed.
    loss, slope : float
        Summed losses, and of a trial their summed slopes along the direction.
    """

    partitions: frozenset[int]
    gradient: F64 | None = None
    loss: float = 0.0
    slope: float = 0.0


@dataclass(frozen=True)
class Vanished:
    """An entry of the queue.

    Attributes
    ----------
    partitions : frozenset of int
        The partitions that vanished together.
    gradient : shape of the model, or None
        Their summed gradient at the model of the round before their loss, which stands for them. None: they vanished
        in round 0, or nothing is to stand for them.
    round_number : int
        The round of their loss.
    """

    partitions: frozenset[int]
    gradient: F64 | None
    round_number: int
