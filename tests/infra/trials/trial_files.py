"""Training functions as users write them, good and bad. This file is shipped as the code of trials."""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np


def train(trial: Any) -> None:
    """Train to the end; the loss of step k is rate / k."""
    state = trial.restore()
    total = 0 if state is None else int(state["total"])
    for step in trial.steps():
        total += step
        trial.report(step, loss=trial.params.get("rate", 1.0) / step)
        trial.save({"total": np.int64(total)})
        time.sleep(trial.params.get("pause_s", 0.0))


def raises(trial: Any) -> None:
    """Fail at the third step."""
    for step in trial.steps():
        trial.report(step, loss=1.0)
        trial.save(b"state")
        if step == 3:
            raise ValueError("no luck\nat all")


def hangs(trial: Any) -> None:
    """Never end the second step."""
    for step in trial.steps():
        trial.report(step, loss=1.0)
        trial.save(b"state")
        if step == 2:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            while True:
                time.sleep(1)


def never_reports(trial: Any) -> None:
    """Train silently."""
    for _ in trial.steps():
        trial.save(b"state")


def never_steps(trial: Any) -> None:
    """Forget the loop."""
    del trial


def reports_another_metric(trial: Any) -> None:
    """Report what the sweep does not ask for."""
    for step in trial.steps():
        trial.report(step, accuracy=1.0)


def reports_nan(trial: Any) -> None:
    """Diverge."""
    for step in trial.steps():
        trial.report(step, loss=1.0 if step == 1 else float("nan"))


def saves_itself(trial: Any) -> None:
    """Save what cannot be saved."""
    for step in trial.steps():
        trial.report(step, loss=1.0)
        trial.save(trial)


def exits(trial: Any) -> None:
    """Call exit."""
    next(trial.steps())
    sys.exit(0)


def is_killed(trial: Any) -> None:
    """Lose its process."""
    print("about to be killed", flush=True)
    next(trial.steps())
    os.kill(os.getpid(), signal.SIGKILL)


def crashes(trial: Any) -> None:
    """Dereference nothing."""
    import ctypes

    next(trial.steps())
    ctypes.string_at(0)


def breaks_out(trial: Any) -> None:
    """Write into every open descriptor, then end without a word."""
    next(trial.steps())
    for descriptor in range(3, 64):
        try:
            os.write(descriptor, b'{"kind": "ended", "step": 10}\nxx\x00\xff' + b"y" * 200_000 + b"\n")
        except OSError:
            continue
    os._exit(3)


def leaves_processes(trial: Any) -> None:
    """End, and leave a process that holds the output open."""
    import subprocess

    child = subprocess.Popen(["sleep", "600"])
    Path(trial.params["pid_file"]).write_text(str(child.pid))
    for step in trial.steps():
        trial.report(step, loss=1.0)


def removes_its_states(trial: Any) -> None:
    """Remove what was saved, behind the back of the supervisor."""
    import shutil

    for step in trial.steps():
        trial.report(step, loss=1.0)
        trial.save(b"state")
        for folder in Path.cwd().glob("0*"):
            shutil.rmtree(folder)


def waits_for_a_file(trial: Any) -> None:
    """Stay in the third step until a file is there."""
    for step in trial.steps():
        while step == 3 and not Path(trial.params["gate"]).exists():
            time.sleep(0.01)
        trial.report(step, loss=1.0)
        trial.save(b"state")
