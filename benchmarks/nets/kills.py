"""Steps that were run for each that counts, while nodes are killed without notice; a new node comes 40 s after each.

Four nodes take clocks of 2.5 s, one worker each. The limit is what the kills leave: each costs the steps of the clock
that its node was in, at least, of one worker.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from proteus_spot.benchmarks.figure import Figure, figure
from proteus_spot.benchmarks.nets import waiting
from proteus_spot.benchmarks.nets.waiting import WaitingNet
from proteus_spot.infra.clock import SystemClock

#: Kills an hour, and seconds of each training.
RATES, SECONDS = (60, 120), 180
#: Seconds until a new node comes, and seconds of a step: two clocks in five seconds.
BACK_S, STEP_S = 40, 0.5
_NODES = "r=1,t=3"


def run(scratch: Path, rates: Sequence[int] = RATES, seconds: int = SECONDS) -> Iterator[Figure]:
    """Measure."""
    for rate in rates:
        ours, limit = _of(scratch / str(rate), rate, seconds)
        yield limit
        restarting, counted = _restarting(scratch / f"ddp-{rate}", rate, seconds)
        what = f"steps run for each that counts, {rate} kills an hour"
        beside_is = "DDP that restarts, a checkpoint every 30 s"
        note = f"DDP, whose new process comes at once: {counted} steps that took {counted * STEP_S:g} of {seconds} s"
        yield figure("nets", what, "", [ours], [restarting], beside_is, note)


def _of(scratch: Path, rate: int, seconds: int) -> tuple[float, Figure]:
    scratch.mkdir(parents=True)
    (scratch / "events.csv").write_text(script(rate, seconds))
    (scratch / "waiting.py").write_bytes(Path(waiting.__file__).read_bytes())  # nodes are sent it as a user's file
    words = [
        "train",
        f"waiting:{WaitingNet.__name__}",
        "--data",
        "digits",
        "--nodes",
        _NODES,
        "--seconds",
        str(seconds),
        "--evaluate-every",
        "0",
    ]
    words += ["--param", f"step_s={STEP_S}", "--param", "size=1000", "--job", "kills", "--json", "kills.json"]
    command = [sys.executable, "-m", "proteus_spot", *words, "--events", "events.csv"]
    done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    found = json.loads((scratch / "kills.json").read_text())
    kills = sum(event["action"] == "kill" for event in found["events"])
    counted = found["clocks"] * WaitingNet.workers
    ours, limit = (counted + found["repeated_micro_tasks"]) / counted, (counted + kills) / counted
    what = f"steps run for each that counts, {rate} kills an hour, {kills} kills in {found['clocks']} clocks of 2.5 s"
    note = f"{len(found['went_back'])} times all went back to the last copy"
    return ours, figure("nets", what, "", [ours], [limit], "what the kills leave", note, most=1.015)


def _restarting(scratch: Path, rate: int, seconds: int) -> tuple[float, int]:
    """Return the steps run for each that counts, and the latter, of the peer; a process of it is killed as often."""
    scratch.mkdir(parents=True)
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    words += ["--max-restarts", "1000", "-m", "proteus_spot.benchmarks.nets.ddp", "--steps", str(10**9)]
    words += ["--wait", str(STEP_S), "--folder", str(scratch)]
    clock = SystemClock()
    with (scratch / "log").open("wb") as log:
        agent = subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)
        try:
            began_s = clock.now_s()
            for number in range(1, rate * seconds // 3600 + 1):
                clock.wait_until(began_s + number * 3600 / rate)
                if processes := _children(agent.pid):
                    os.kill(processes[-1], signal.SIGKILL)
            clock.wait_until(began_s + seconds)
        finally:
            for process in [*_children(agent.pid), agent.pid]:
                os.kill(process, signal.SIGKILL)
            agent.wait()
    steps = [int(line) for line in (scratch / "steps-0").read_text().split()]
    return len(steps) / max(steps), max(steps)


def _children(pid: int) -> list[int]:
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def script(rate: int, seconds: int) -> str:
    """Return the events: kills of the oldest transient node at equal distances, and a new node after each."""
    alive, number, lines = ["t1", "t2", "t3"], 3, []
    every = 3600 // rate
    for second in range(1, seconds):
        if second % every == 0 and len(alive) > 1:
            lines.append(f"second:{second},kill,{alive.pop(0)}")
        if second > BACK_S and (second - BACK_S) % every == 0:
            number += 1
            alive.append(f"t{number}")
            lines.append(f"second:{second},join,t{number}")
    return "\n".join(lines) + "\n"
