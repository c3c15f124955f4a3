"""How many times the samples of synchronous training DiLoCo takes to the same loss, by its number of workers.

From the tables of trainings that `defaults` wrote, which are kept beside this module. A training of so many steps is
one whole schedule, so its loss is compared with those of synchronous trainings of other lengths.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

#: Workers of a training that names none.
_USUAL_WORKERS = 8


def tables(folder: Path = Path(__file__).parent) -> list[dict[str, Any]]:
    """Return the tables that are kept."""
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    return [each for each in found if "settings" in each]


def samples_factor(trained: Iterable[dict[str, Any]], workers: int) -> tuple[float, int]:
    """Return the factor for so many workers, at least 1, and the steps of the longest training, from which it is.

    The steps of the synchronous training with the same loss are interpolated, in their logarithm; beyond the shortest
    and the longest one, they follow from the two next to it.

    Raises
    ------
    ValueError
        If there are fewer than two lengths of synchronous training, or none with so many workers.
    """
    alone: dict[int, float] = {}
    found: dict[int, float] = {}
    for table in trained:
        steps = int(table["steps"])
        if table["together"]:
            alone[steps] = min(table["together"].values())
        losses = [each["loss"] for each in table["settings"] if each.get("workers", _USUAL_WORKERS) == workers]
        if losses:
            found[steps] = min(losses)
    if len(alone) < 2 or not found:
        raise ValueError(f"{len(alone)} lengths of synchronous training, {len(found)} of one with {workers} workers")
    longest = max(found)
    loss = found[longest]
    for first, second in pairwise(sorted(alone)):
        share = (alone[first] - loss) / (alone[first] - alone[second])
        same = first * (second / first) ** share
        if loss >= alone[second]:
            break
    return max(float(longest / same), 1.0), longest
