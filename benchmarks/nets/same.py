"""Parameters after twenty clocks on two nodes beside bare DiLoCo in one process: the same bits."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch

from proteus_spot.benchmarks.figure import Figure, figure
from proteus_spot.benchmarks.nets.characters import Characters, Windows, generated_text, parts_of
from proteus_spot.benchmarks.training.through_engine import NODES, trained
from proteus_spot.psengine.tables.tree_sum import tree_sum

CLOCKS, STEPS = 20, 5
_APP = f"{Characters.__module__}:{Characters.__name__}"


def run(scratch: Path, clocks: int = CLOCKS, steps: int = STEPS) -> Iterator[Figure]:
    """Measure."""
    net = Characters(local_steps=steps, moments="keep")
    parts, held = parts_of(generated_text(), net.workers)
    _, files = trained(scratch, _APP, {"local_steps": steps}, parts, held, clocks, n_shards=2, kind="arrays")
    ours = safetensors.torch.load(files["model.safetensors"])
    bare = bare_diloco(net, parts, clocks)
    equal = sum(int((ours[name] == each).sum()) for name, each in bare.items())
    total = sum(each.numel() for each in bare.values())
    what = f"parameters with the same bits after {clocks} clocks of {steps} steps, {net.workers} workers"
    yield figure("nets", what, "", [equal], [total], "of bare DiLoCo in one process", f"{len(NODES)} nodes")


def bare_diloco(net: Characters, parts: list[dict[str, Any]], clocks: int) -> dict[str, torch.Tensor]:
    """Return the model after the clocks, by a loop without the engine; its outer rule is the plain mean."""
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(net.threads)
    torch.manual_seed(net.job_seed)
    state = net.model().state_dict()
    models = [net.model() for _ in range(net.workers)]
    optimizers = [net.optimizer(model.parameters()) for model in models]
    schedules = [net.schedule(optimizer) for optimizer in optimizers]
    windows = [Windows(torch.from_numpy(part["text"].copy()), net.context) for part in parts]
    for clock in range(clocks):
        changes = []
        for worker, model in enumerate(models):
            model.load_state_dict(state)
            for step in range(clock * net.local_steps, (clock + 1) * net.local_steps):
                rows = _rows(len(windows[worker]), worker, step * net.batch_size, net.batch_size)
                batch = torch.utils.data.default_collate([windows[worker][row] for row in rows])
                optimizers[worker].zero_grad()
                net.loss(model, batch).backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), net.clip_norm)
                optimizers[worker].step()
                schedules[worker].step()
            share = np.float32(net.workers)
            changes.append({name: (each - state[name]).numpy() / share for name, each in model.state_dict().items()})
        total: Any = tree_sum((0, net.workers), partial(_leaf, changes))
        state = {name: each + torch.from_numpy(total[name]) for name, each in state.items()}
    return dict(state)


def _leaf(changes: list[Any], part: tuple[int, int]) -> Any:
    return changes[part[0]] if part[1] - part[0] == 1 else None


def _rows(examples: int, worker: int, first: int, count: int) -> list[int]:
    orders: dict[int, Any] = {}
    rows = []
    for place in range(first, first + count):
        epoch, at = divmod(place, examples)
        if epoch not in orders:
            orders[epoch] = np.random.default_rng([0, worker, epoch]).permutation(examples)
        rows.append(int(orders[epoch][at]))
    return rows
