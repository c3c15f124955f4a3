"""Held-out loss at equal samples beside one process that takes each step with the batch of all workers.

Both take `STEPS` steps with the same schedule. The synchronous one is tuned over `RATES`; DiLoCo takes the best. What
is asked is asked of longer trainings, which `defaults` makes.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from proteus_spot.benchmarks.figure import Figure, figure
from proteus_spot.benchmarks.nets.characters import Characters, generated_text, parts_of
from proteus_spot.psengine.config import Nesterov
from proteus_spot.psengine.single_process import initial, train_alone

STEPS = 600
RATES = (0.006, 0.012)
#: Examples of a step, of all workers.
_BATCH = 128
#: (local steps, warm steps as a share of all, learning rate and momentum of the outer rule).
SETTINGS: Sequence[tuple[int, float, tuple[float, float]]] = (
    (25, 0.2, (1, 0.5)),
    (25, 0.0, (1, 0)),
    (100, 0.2, (1, 0.5)),
)


def run(scratch: Path, steps: int = STEPS) -> Iterator[Figure]:
    """Measure, two trainings at a time."""
    del scratch
    text = generated_text()
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        losses = dict(zip(RATES, pool.map(partial(together, text, steps), RATES), strict=True))
        rate = min(losses, key=lambda each: losses[each])
        settings: list[dict[str, Any]] = [
            {"local_steps": local, "warm_steps": round(share * steps), "outer": outer, "rate": rate}
            for local, share, outer in SETTINGS
        ]
        for setting, loss in zip(settings, pool.map(partial(tried, text, steps), settings), strict=True):
            rule = "H = {local_steps}, {warm_steps} warm steps, outer {outer[0]:g}, {outer[1]:g}".format(**setting)
            what = f"held-out loss, {steps} steps, {rule}"
            yield figure("nets", what, "nats", [loss], [losses[rate]], f"batch {_BATCH} in one process")


def together(text: bytes, steps: int, rate: float) -> float:
    """Return the loss of one process with the batch of all workers."""
    parts, held = parts_of(text, 1)
    made: dict[str, Any] = {"workers": 1, "batch_size": _BATCH, "local_steps": 1, "warm_steps": 0}
    return held_out_loss(Characters(rate=rate, steps=steps, outer=Nesterov(1, 0), **made), parts, held, steps)


def tried(text: bytes, steps: int, setting: dict[str, Any]) -> float:
    """Return the loss of a setting."""
    made: dict[str, Any] = (
        {"workers": 8, "moments": "keep", "warm_steps": 0} | setting | {"outer": Nesterov(*setting["outer"])}
    )
    net = Characters(steps=steps, batch_size=_BATCH // made["workers"], **made)
    parts, held = parts_of(text, net.workers)
    return held_out_loss(net, parts, held, steps // net.local_steps)


def held_out_loss(net: Characters, parts: Sequence[Any], held: Any, clocks: int) -> float:
    """Return the held-out loss of a net after some clocks."""
    app = net.engine_application()
    data: list[Any] = [app.prepare({name: np.asarray(array) for name, array in part.items()}) for part in parts]
    tables = train_alone(app, data, initial(app, 0), net.calendar.groups(clocks))
    return app.evaluate(tables, held)["loss"]
