"""A checkpoint, as the controller and the nodes name it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Checkpoint:
    """A whole checkpoint: the common clock it is of, where it is, and the job's figures up to there.

    `summary` holds what `Controller` says of a job (losses, seconds, …); JSON-able.
    """

    clock: int
    name: str
    summary: Mapping[str, Any]
