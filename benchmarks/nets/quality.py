"""Held-out loss at equal samples beside one process that takes each step with the batch of all workers.

Both take `STEPS` steps with the same schedule. The synchronous one is tuned over `RATES`; DiLoCo takes the best. What
is asked is asked of longer trainings, which `defaults` makes.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
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
_BATCH = Characters.workers * Characters.batch_size
#: (local steps, warm steps as a share of all, outer rule).
SETTINGS: Sequence[tuple[int, float, Nesterov]] = (
    (25, 0.2, Nesterov(1, 0.5)),
    (25, 0.0, Nesterov(1, 0)),
    (100, 0.2, Nesterov(1, 0.5)),
)


def run(scratch: Path, steps: int = STEPS) -> Iterator[Figure]:
    """Measure, two trainings at a time."""
    del scratch
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        together = dict(zip(RATES, pool.map(_of_one_process, RATES, repeat(steps)), strict=True))
        rate = min(together, key=lambda each: together[each])
        losses = pool.map(_of_workers, SETTINGS, repeat(rate), repeat(steps))
        for (local_steps, warm_share, outer), loss in zip(SETTINGS, losses, strict=True):
            rule = f"outer {outer.lr:g}, {outer.momentum:g}"
            what = f"held-out loss, {steps} steps, H = {local_steps}, {round(warm_share * steps)} warm steps, {rule}"
            yield figure("nets", what, "nats", [loss], [together[rate]], f"batch {_BATCH} in one process")


def _of_one_process(rate: float, steps: int) -> float:
    parts, held = parts_of(generated_text(), 1)
    net = Characters(workers=1, batch_size=_BATCH, rate=rate, steps=steps, local_steps=1)
    return held_out_loss(net, parts, held, steps)


def _of_workers(setting: tuple[int, float, Nesterov], rate: float, steps: int) -> float:
    local_steps, warm_share, outer = setting
    parts, held = parts_of(generated_text(), Characters.workers)
    warm_steps = round(warm_share * steps)
    net = Characters(local_steps=local_steps, warm_steps=warm_steps, outer=outer, rate=rate, steps=steps)
    return held_out_loss(net, parts, held, steps // local_steps)


def held_out_loss(net: Characters, parts: Sequence[Any], held: Any, clocks: int) -> float:
    """Return the held-out loss of a net after some clocks."""
    app = net.engine_application()
    data: list[Any] = [app.prepare({name: np.asarray(array) for name, array in part.items()}) for part in parts]
    tables = train_alone(app, data, initial(app, 0), net.calendar.groups(clocks))
    return app.evaluate(tables, held)["loss"]
