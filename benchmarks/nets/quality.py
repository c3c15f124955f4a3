"""Held-out loss at equal samples beside one process that takes each step with the batch of all workers.

Both take `STEPS` steps with the same schedule. The synchronous one is tuned over `RATES`; DiLoCo takes the best.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from proteus_spot.benchmarks.figure import Figure, figure
from proteus_spot.benchmarks.nets.characters import Characters, generated_text, parts_of
from proteus_spot.psengine.config import Nesterov
from proteus_spot.psengine.single_process import initial, train_alone

STEPS = 400
RATES = (0.003, 0.006)
#: (local steps, steps of the beginning that are exchanged one by one, outer rule).
SETTINGS: Sequence[tuple[int, int, Nesterov]] = (
    (25, 0, Nesterov(1, 0)),
    (25, 100, Nesterov(1, 0)),
    (25, 0, Nesterov(1, 0.5)),
    (100, 100, Nesterov(1, 0)),
)


def run(scratch: Path, steps: int = STEPS) -> Iterator[Figure]:
    """Measure."""
    del scratch
    text = generated_text()
    whole, held = parts_of(text, 1)
    parts, _ = parts_of(text, Characters.workers)
    batch = Characters.workers * Characters.batch_size
    together = {
        rate: _loss(Characters(workers=1, batch_size=batch, rate=rate, steps=steps, local_steps=1), whole, held, steps)
        for rate in RATES
    }
    rate = min(together, key=lambda each: together[each])
    for local_steps, warm_steps, outer in SETTINGS:
        clocks = warm_steps + (steps - warm_steps) // local_steps
        net = Characters(local_steps=local_steps, warm_steps=warm_steps, outer=outer, rate=rate, steps=steps)
        rule = f"outer {outer.lr:g}, {outer.momentum:g}"
        what = f"held-out loss, {steps} steps, H = {local_steps}, {warm_steps} warm steps, {rule}"
        yield figure(
            "nets", what, "nats", [_loss(net, parts, held, clocks)], [together[rate]], f"batch {batch} in one process"
        )


def _loss(net: Characters, parts: Sequence[Any], held: Any, clocks: int) -> float:
    app = net.engine_application()
    data: list[Any] = [app.prepare({name: np.asarray(array) for name, array in part.items()}) for part in parts]
    tables = train_alone(app, data, initial(app, 0), clocks)
    return app.evaluate(tables, held)["loss"]
