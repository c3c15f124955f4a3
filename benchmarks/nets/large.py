"""A table of 100 M floats: seconds of a clock, a checkpoint, a replica and the end, and the memory of a server.

One worker on two nodes: the reliable node has the table, or its replica; the other one works, and serves in stage 2.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from proteus_spot.benchmarks.figure import Figure, figure
from proteus_spot.benchmarks.nets.waiting import WaitingNet
from proteus_spot.benchmarks.training.through_engine import trained
from proteus_spot.infra.clock import SystemClock
from proteus_spot.tasks.local_nodes.local_nodes import LocalNodes

SIZE, CLOCKS, STEP_S = 100_000_000, 6, 0.5
#: Bytes of memory that a server may take for each parameter.
_ASKED = 17.0
_APP = f"{WaitingNet.__module__}:{WaitingNet.__name__}"


class _Peaks:
    """Greatest memory of each node's processes while a job runs."""

    def __init__(self) -> None:
        self.bytes: dict[str, int] = {}

    def look(self, running: LocalNodes) -> None:
        names = {group: name for name, group in running.process_groups.items()}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                name = names.get(os.getpgid(int(folder.name)))
                if name is None or b"infra.nodes.main" not in (folder / "cmdline").read_bytes():
                    continue  # also a process of tasks, which serves nothing
                text = (folder / "status").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if found := re.search(r"VmHWM:\s+(\d+) kB", text):
                self.bytes[name] = max(self.bytes.get(name, 0), int(found[1]) * 1024)


def run(scratch: Path, size: int = SIZE, clocks: int = CLOCKS) -> Iterator[Figure]:
    """Measure."""
    parts = [{"x": np.zeros((64, 1), np.float32)}]
    params = {"size": size, "workers": 1, "local_steps": 1, "step_s": STEP_S}
    for stage, what in ((1, "checkpoints"), (2, "a replica")):
        peaks, clock = _Peaks(), SystemClock()
        began_s = clock.now_s()
        result, _ = trained(
            scratch / str(stage),
            _APP,
            params,
            parts,
            parts[0],
            clocks,
            kind="arrays",
            watch=peaks.look,
            stage=stage,
            checkpoint_s=5.0 if stage == 1 else None,
        )
        took_s = clock.now_s() - began_s
        about = f"{size / 1e6:g} M floats, {what}"
        rest_s = took_s - result["seconds"]
        note = f"without the clocks, among it start and end, {rest_s:.0f} s"
        yield figure("nets", f"a clock, {about}", "s", result["seconds_by_clock"][1:], [STEP_S], "its step", note)
        peak = max(peaks.bytes.get("r1", 0), 1)
        by_node = ", ".join(f"{name} {taken / 1e9:.2f}" for name, taken in sorted(peaks.bytes.items()))
        yield figure(
            "nets",
            f"a server's memory, {about}",
            "GB",
            [peak / 1e9],
            [size / 1e9],
            "a byte a float",
            by_node,
            most=_ASKED,
        )
