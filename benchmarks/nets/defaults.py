"""The table from which the defaults of nets come: held-out loss by local steps, outer rule, moments and warm steps.

    python -m proteus_spot.benchmarks.nets.defaults TEXT --out benchmarks/nets/defaults.json

Every training takes as many steps of 128 examples; the loss is beside that of one process with the batch of all
workers, at the best of some rates. `defaults.json` is what it wrote; `nets.settings` has what follows from it. With
`--steps` a longer training of the few settings that matter then, each with a rate of its own.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from proteus_spot.benchmarks.nets.quality import together, tried

#: Steps of the table; rates of one process, in it and in longer trainings.
STEPS, RATES, LONG_RATES = 600, (0.006, 0.012), (0.012, 0.006, 0.024)
_MEAN, _HALF, _MORE, _PAPER = (1.0, 0.0), (1.0, 0.5), (1.0, 0.7), (0.7, 0.9)
#: What longer trainings try: (local steps, share of warm steps in hundredths, outer rule, rate).
_LONG = (
    (25, 30, _HALF, 0.012),
    (100, 30, _HALF, 0.012),
    (25, 30, _HALF, 0.006),
    (100, 30, _HALF, 0.006),
    (25, 20, _HALF, 0.012),
    (100, 20, _HALF, 0.012),
    (25, 30, _HALF, 0.024),
    (25, 30, _MORE, 0.012),
    (100, 30, _MORE, 0.012),
)
#: What is found of a setting.
_FOUND = ("loss", "above_together")


def settings(steps: int = STEPS) -> Iterator[dict[str, Any]]:
    """Return the settings that are tried, those first that decide most."""
    if steps > STEPS:
        for local, hundredths, outer, rate in _LONG:
            yield {"local_steps": local, "outer": outer, "warm_steps": steps * hundredths // 100, "rate": rate}
        return
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


def main(words: Sequence[str]) -> None:
    """Make the table, which is written after each training; what it has of the same text stays."""
    parser = argparse.ArgumentParser()
    parser.add_argument("text", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=STEPS)
    given = parser.parse_args(words)
    text = given.text.read_bytes()
    about = {"text_sha256": sha256(text).hexdigest(), "steps": given.steps}
    table: dict[str, Any] = json.loads(given.out.read_text()) if given.out.exists() else {}
    if {name: table.get(name) for name in about} != about:
        longer = f" --steps {given.steps}" if given.steps != STEPS else ""
        command = f"python -m {__spec__.name} {given.text.name} --out {given.out.name}{longer}"
        table = {"command": command, **about, "together": {}, "settings": []}

    def write() -> None:
        least = min(table["together"].values())
        for row in table["settings"]:
            row["above_together"] = round(row["loss"] / least - 1, 4)
        given.out.write_text(json.dumps(table, indent=1) + "\n")

    for rate in RATES if given.steps <= STEPS else LONG_RATES:
        if str(rate) not in table["together"]:
            table["together"][str(rate)] = round(together(text, given.steps, rate), 4)
            write()
    best = float(min(table["together"], key=lambda each: float(table["together"][each])))
    done = [{name: each[name] for name in each if name not in _FOUND} for each in table["settings"]]
    for setting in settings(given.steps):
        if setting | {"outer": list(setting["outer"])} in done:
            continue
        table["settings"].append({**setting, "loss": round(tried(text, given.steps, {"rate": best} | setting), 4)})
        write()


if __name__ == "__main__":
    main(sys.argv[1:])
