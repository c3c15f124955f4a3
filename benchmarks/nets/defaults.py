"""The table from which the defaults of nets come: held-out loss by local steps, outer rule, moments and warm steps.

    python -m proteus_spot.benchmarks.nets.defaults TEXT --out benchmarks/nets/defaults.json

Every training takes as many steps of 128 examples; the loss is beside that of one process with the batch of all
workers, at the better of two rates. `defaults.json` is what it wrote; `nets.settings` has what follows from it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from proteus_spot.benchmarks.nets.characters import Characters, parts_of
from proteus_spot.benchmarks.nets.quality import held_out_loss
from proteus_spot.infra.clock import SystemClock
from proteus_spot.psengine.config import Nesterov

STEPS, RATES = 600, (0.006, 0.012)
#: Examples of a step, of all workers.
_BATCH = 128
_MEAN, _HALF, _PAPER = (1.0, 0.0), (1.0, 0.5), (0.7, 0.9)
#: What is found of a setting.
_FOUND = ("loss", "above_together")


def settings() -> Iterator[dict[str, Any]]:
    """Return the settings that are tried, those first that decide most."""
    for local in (25, 100, 5):
        for outer in (_HALF, _MEAN):
            yield {"local_steps": local, "outer": outer, "warm_steps": 120}
    for local, outer in ((25, _HALF), (25, _MEAN), (100, _HALF), (100, _MEAN), (5, _HALF)):
        yield {"local_steps": local, "outer": outer, "warm_steps": 30}
    for outer in (_MEAN, _HALF):
        yield {"local_steps": 25, "outer": outer}
    yield {"local_steps": 25, "outer": _HALF, "moments": "reset", "warm_steps": 120}
    for workers in (4, 16):
        yield {"workers": workers, "local_steps": 25, "outer": _HALF, "warm_steps": 120}
    for local, outer in ((5, _MEAN), (5, _HALF), (100, _MEAN), (100, _HALF), (25, _PAPER)):
        yield {"local_steps": local, "outer": outer}


def together(text: bytes, steps: int, rates: Sequence[float] = RATES) -> dict[float, float]:
    """Return the loss of one process with the batch of all workers, by rate."""
    parts, held = parts_of(text, 1)
    made = {"workers": 1, "batch_size": _BATCH, "local_steps": 1, "warm_steps": 0, "outer": Nesterov(1, 0)}
    return {rate: held_out_loss(Characters(rate=rate, steps=steps, **made), parts, held, steps) for rate in rates}


def tried(text: bytes, steps: int, rate: float, setting: dict[str, Any]) -> float:
    """Return the loss of a setting."""
    made: dict[str, Any] = (
        {"workers": 8, "moments": "keep", "warm_steps": 0} | setting | {"outer": Nesterov(*setting["outer"])}
    )
    net = Characters(rate=rate, steps=steps, batch_size=_BATCH // made["workers"], **made)
    parts, held = parts_of(text, net.workers)
    return held_out_loss(net, parts, held, net.warm_steps + (steps - net.warm_steps) // net.local_steps)


def main(words: Sequence[str]) -> None:
    """Make the table, which is written after each training; what it has of the same text stays."""
    parser = argparse.ArgumentParser()
    parser.add_argument("text", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=STEPS)
    given = parser.parse_args(words)
    text, clock = given.text.read_bytes(), SystemClock()
    about = {"text_sha256": sha256(text).hexdigest(), "steps": given.steps}
    table: dict[str, Any] = json.loads(given.out.read_text()) if given.out.exists() else {"seconds": 0}
    began_s = clock.now_s() - table["seconds"]
    if {name: table.get(name) for name in about} != about:
        alone = {str(each): round(loss, 4) for each, loss in together(text, given.steps).items()}
        command = f"python -m {__spec__.name} {given.text.name} --out {given.out.name}"
        table = {"command": command, **about, "together": alone, "settings": []}
    rate = min(table["together"], key=lambda each: float(table["together"][each]))
    done = [{name: each[name] for name in each if name not in _FOUND} for each in table["settings"]]
    for setting in settings():
        if setting | {"outer": list(setting["outer"])} in done:
            continue
        loss = tried(text, given.steps, float(rate), setting)
        above = round(loss / table["together"][rate] - 1, 4)
        table["settings"].append({**setting, "loss": round(loss, 4), "above_together": above})
        table["seconds"] = round(clock.now_s() - began_s)
        given.out.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
