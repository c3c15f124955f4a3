"""Steps that were run for each that counts, while nodes are killed without notice; a new node comes 40 s after each.

Four nodes take clocks of 2.5 s, one worker each; the reliable one serves. The limit is what the kills leave: each costs
the steps of the clock that its node was in, at least, of one worker. The parameters are held against those of one
process without kills.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from proteus_spot.benchmarks.figure import Figure, figure
from proteus_spot.benchmarks.nets import waiting
from proteus_spot.benchmarks.nets.waiting import MODEL_FILE, WaitingNet
from proteus_spot.infra.clock import SystemClock
from proteus_spot.infra.storage.job_paths import JobPaths
from proteus_spot.psengine.single_process import initial, train_alone

#: Kills an hour, and seconds of each training.
RATES, SECONDS = (60, 120), 150
#: Seconds until a new node comes, and seconds of a step: two clocks in five seconds.
BACK_S, STEP_S = 40, 0.5
_NODES, _SIZE = "r=1,t=3", 1000
#: A clock is slow from so many times its steps on: a node that is away makes it twice as long.
_SLOW = 1.5


def run(scratch: Path, rates: Sequence[int] = RATES, seconds: int = SECONDS) -> Iterator[Figure]:
    """Measure."""
    for rate in rates:
        ours, *found = _of(scratch / str(rate), rate, seconds)
        yield from found
        restarting, counted = _restarting(scratch / f"ddp-{rate}", rate, seconds)
        what = f"steps run for each that counts, {rate} kills an hour"
        beside_is = "DDP that restarts, a checkpoint every 30 s"
        note = f"needed of those run: {1 / ours:.1%}, {1 / restarting:.1%}; DDP, whose new process comes at once: "
        note += f"{counted} steps that took {counted * STEP_S:g} of {seconds} s"
        yield figure("nets", what, "", [ours], [restarting], beside_is, note, counted > 0)


def _of(scratch: Path, rate: int, seconds: int) -> tuple[float, Figure, Figure, Figure]:
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
        "--stage",
        "1",
    ]
    words += ["--param", f"step_s={STEP_S}", "--param", f"size={_SIZE}", "--job", "kills", "--json", "kills.json"]
    command = [sys.executable, "-m", "proteus_spot", *words, "--events", "events.csv"]
    done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    found = json.loads((scratch / "kills.json").read_text())
    kills = sum(event["action"] == "kill" for event in found["events"])
    counted = found["clocks"] * WaitingNet.workers
    ours, limit = (counted + found["repeated_micro_tasks"]) / counted, (counted + kills) / counted
    what = f"steps run for each that counts, {rate} kills an hour, {kills} kills in {found['clocks']} clocks of 2.5 s"
    note = f"needed of those run: {1 / ours:.1%}, {1 / limit:.1%}; "
    note += f"{len(found['went_back'])} times all went back to the last copy"
    again = figure("nets", what, "", [ours], [limit], "what the kills leave", note, most=1.015)
    blobs = scratch / "runs" / "kills" / "blobs"
    after = np.frombuffer((blobs / JobPaths("kills").model / MODEL_FILE).read_bytes(), np.float32)
    alone = undisturbed(found["clocks"])
    equal = int((after == alone).sum())
    what = f"parameters with the same bits after {rate} kills an hour"
    same = figure("nets", what, "", [equal], [alone.size], "of one process without kills")
    return ours, again, _wait(rate, found["seconds_by_clock"], kills), same


def _wait(rate: int, seconds: Sequence[float], kills: int) -> Figure:
    """Return the seconds of the clocks that were hit: the first slow ones."""
    clock_s = STEP_S * WaitingNet.local_steps
    hit = [now for before, now in pairwise(seconds) if before < _SLOW * clock_s <= now]
    note = f"of {kills} kills {len(hit)} hit a clock whose nodes were all there"
    what = f"a clock that is hit, {rate} kills an hour"
    return figure("nets", what, "s", hit or [0.0], [2 * clock_s], "its steps, and those done again", note, bool(hit))


def undisturbed(clocks: int) -> NDArray[np.float32]:
    """Return the parameters after as many clocks of one process."""
    app = WaitingNet(step_s=0.0, size=_SIZE).engine_application()
    parts = [{"x": np.zeros((64, 1), np.float32)}] * WaitingNet.workers
    return np.asarray(train_alone(app, parts, initial(app, 0), clocks)["parameters"], np.float32).ravel()


def _restarting(scratch: Path, rate: int, seconds: int) -> tuple[float, int]:
    """Return the steps run for each that counts, and the latter, of the peer; a process of it is killed as often.

    The latter is 0 if it has taken none in the time.
    """
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
    log_of_steps = scratch / "steps-0"
    steps = [int(line) for line in log_of_steps.read_text().split()] if log_of_steps.exists() else []
    return (len(steps) / max(steps), max(steps)) if steps else (1.0, 0)


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
