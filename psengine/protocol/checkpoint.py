"""Reference to a checkpoint, as the controller and the nodes exchange it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint: its common clock, its name in the blob store, and the job's figures up to that clock.

    `summary` is the job's summary (losses, seconds, …, see `psengine.controller.status`); JSON-able.
    """

    clock: int
    name: str
    summary: Mapping[str, Any]
