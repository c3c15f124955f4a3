"""Held-out loss at equal samples beside one process that takes each step with the batch of all workers.

Both take `STEPS` steps with the same schedule. The synchronous one is tuned over `RATES`; DiLoCo takes the best. What
is asked is asked of longer trainings, which `defaults` makes.
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

STEPS = 600
RATES = (0.006, 0.012)
#: (local steps, warm steps as a share of all, outer rule).
SETTINGS: Sequence[tuple[int, float, Nesterov]] = (
    (25, 0.2, Nesterov(1, 0.5)),
    (25, 0.0, Nesterov(1, 0)),
    (100, 0.2, Nesterov(1, 0.5)),
)


def run(scratch: Path, steps: int = STEPS) -> Iterator[Figure]:
    """Measure."""
    del scratch
    text = generated_text()
    whole, held = parts_of(text, 1)
    parts, _ = parts_of(text, Characters.workers)
    batch = Characters.workers * Characters.batch_size
    together = {
        rate: held_out_loss(
            Characters(workers=1, batch_size=batch, rate=rate, steps=steps, local_steps=1), whole, held, steps
        )
        for rate in RATES
    }
    rate = min(together, key=lambda each: together[each])
    for local_steps, warm_share, outer in SETTINGS:
        warm_steps = round(warm_share * steps)
        net = Characters(local_steps=local_steps, warm_steps=warm_steps, outer=outer, rate=rate, steps=steps)
        rule = f"outer {outer.lr:g}, {outer.momentum:g}"
        what = f"held-out loss, {steps} steps, H = {local_steps}, {warm_steps} warm steps, {rule}"
        loss = held_out_loss(net, parts, held, steps // local_steps)
        yield figure("nets", what, "nats", [loss], [together[rate]], f"batch {batch} in one process")


def held_out_loss(net: Characters, parts: Sequence[Any], held: Any, clocks: int) -> float:
    """Return the held-out loss of a net after some clocks."""
    app = net.engine_application()
    data: list[Any] = [app.prepare({name: np.asarray(array) for name, array in part.items()}) for part in parts]
    tables = train_alone(app, data, initial(app, 0), net.calendar.groups(clocks))
    return app.evaluate(tables, held)["loss"]
