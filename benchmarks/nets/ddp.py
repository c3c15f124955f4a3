"""A peer: synchronous training by `DistributedDataParallel` over gloo; a process of it.

Run by `torchrun` it restarts from a checkpoint, and appends a line to a log for each step; its steps wait. Run in
network namespaces, it trains the characters and prints the seconds, the loss and the bytes of its interface.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from proteus_spot.benchmarks.nets.characters import Characters, Windows, parts_of
from proteus_spot.infra.clock import SystemClock


def main(words: Sequence[str]) -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--wait", type=float, default=0.0)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--checkpoint-s", type=float, default=30.0)
    parser.add_argument("--text", type=Path)
    parser.add_argument("--join", default="")
    given = parser.parse_args(words)
    if given.join:
        address, rank, count = given.join.split(",")
        distributed.init_process_group("gloo", init_method=address, rank=int(rank), world_size=int(count))
    else:
        distributed.init_process_group("gloo")
    torch.set_num_threads(1)
    if given.text is None:
        _wait(given.steps, given.wait, given.folder, given.checkpoint_s)
    else:
        _train(given.steps, given.text, given.folder)
    distributed.destroy_process_group()


def _wait(steps: int, wait_s: float, folder: Path, every_s: float) -> None:
    clock, rank = SystemClock(), distributed.get_rank()
    model = DistributedDataParallel(torch.nn.Linear(1000, 1))
    saved = folder / "checkpoint.pt"
    step = int(torch.load(saved)["step"]) if saved.exists() else 0
    last_s = clock.now_s()
    while step < steps:
        clock.wait_until(clock.now_s() + wait_s)
        model(torch.ones(1, 1000)).sum().backward()
        step += 1
        with (folder / f"steps-{rank}").open("a") as log:
            log.write(f"{step}\n")
        if rank == 0 and clock.now_s() - last_s >= every_s:
            last_s = clock.now_s()
            torch.save({"step": step, "model": model.state_dict()}, folder / "new.pt")
            (folder / "new.pt").rename(saved)


def _train(steps: int, text: Path, folder: Path) -> None:
    rank, count = distributed.get_rank(), distributed.get_world_size()
    net = Characters(steps=steps)
    parts, held = parts_of(text.read_bytes(), count)
    windows = Windows(torch.from_numpy(parts[rank]["text"].copy()), net.context)
    torch.manual_seed(0)
    model: Any = DistributedDataParallel(net.model())
    optimizer = net.optimizer(model.parameters())
    schedule = net.schedule(optimizer)
    order, size = np.random.default_rng([0, rank]).permutation(len(windows)), net.batch_size * net.workers // count
    clock = SystemClock()
    began_s = clock.now_s()
    for step in range(steps):
        rows = [int(order[(step * size + each) % len(order)]) for each in range(size)]
        batch = torch.utils.data.default_collate([windows[row] for row in rows])
        optimizer.zero_grad()
        net.loss(model, batch).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), net.clip_norm)
        optimizer.step()
        schedule.step()
    seconds = clock.now_s() - began_s
    if rank == 0:
        loss = net.evaluate(model.module, {"text": torch.from_numpy(held["text"].copy())})["loss"]
        sent = int(Path("/sys/class/net/eth0/statistics/tx_bytes").read_text())
        (folder / "ddp.json").write_text(json.dumps({"seconds": seconds, "loss": loss, "sent": sent}))


if __name__ == "__main__":
    main(sys.argv[1:])
