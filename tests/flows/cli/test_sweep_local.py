"""`proteus sweep local` as a user runs it: its result, its exit codes, and what goes to standard output."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli_process import proteus

CODE = """
import time

def train(trial):
    print("a bar at 50%", end="\\r", flush=True)
    print("hello from a trial", flush=True)
    for step in trial.steps():
        if trial.params["rate"] == 7:
            raise ValueError("no luck")
        trial.report(step, loss=trial.params["rate"] / step)
        trial.save(b"state")
        time.sleep(trial.params["pause_s"])
"""


def _write(folder: Path, rates: list[int], pause_s: float = 0.0, steps: int = 3) -> None:
    (folder / "mine.py").write_text(CODE)
    space = {"rate": {"choice": rates}, "pause_s": {"choice": [pause_s]}}
    described = {"trial": "mine:train", "code": "mine.py", "space": space, "metric": {"name": "loss"}, "stop": "none"}
    (folder / "digits.yaml").write_text(json.dumps({**described, "max_trial_steps": steps}))


def test_the_result_alone_goes_to_standard_output_and_each_line_of_a_trial_has_its_number(tmp_path: Path) -> None:
    _write(tmp_path, [1, 2])
    outcome = proteus("sweep", "local", "digits.yaml", "--json", "-", cwd=tmp_path, home=tmp_path)
    assert outcome.code == 0, outcome
    result = json.loads(outcome.out)
    assert (result["state"], result["best"]["value"]) == ("finished", pytest.approx(1 / 3))
    said = [line for line in outcome.err.splitlines() if "hello from a trial" in line]
    assert sorted(said) == ["trial-00: hello from a trial", "trial-01: hello from a trial"]
    assert "trial-01: a bar at 50%\n" in outcome.err
    (line,) = re.findall(r"^trial-\d\d \((.*)\) finished, step 3: loss 0\.333333$", outcome.err, re.MULTILINE)
    assert set(line.split(", ")) == {"pause_s=0.0", "rate=1"}


def test_a_sweep_without_a_value_has_failed(tmp_path: Path) -> None:
    _write(tmp_path, [7])
    outcome = proteus("sweep", "local", "digits.yaml", "--json", "out.json", cwd=tmp_path, home=tmp_path)
    assert outcome.code == 1, outcome
    assert "3 tries failed alike before the first step: ValueError: no luck (mine.py, line 9, in train)" in outcome.err
    result = json.loads((tmp_path / "out.json").read_text())
    assert (result["state"], result["best"], result["trials"][0]["state"]) == ("failed", None, "failed")


def test_ctrl_c_saves_every_trial_and_leaves_no_process(tmp_path: Path) -> None:
    _write(tmp_path, [1], pause_s=0.05, steps=10**6)
    command = Path(sys.executable).with_name("proteus")
    with subprocess.Popen(
        [command, "sweep", "local", "digits.yaml"], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    ) as run:
        assert run.stderr is not None
        while "hello from a trial" not in (line := run.stderr.readline()):
            assert line, "it has ended"
        run.send_signal(signal.SIGINT)
        rest = run.stderr.read()  # ends when no process has it open any more
    assert run.returncode == 130, rest
    assert f"interrupted: every trial is saved in {tmp_path}/runs/digits; the same command goes on" in rest
    assert list((tmp_path / "runs" / "digits" / "blobs" / "jobs" / "digits" / "trials" / "0000" / "states").iterdir())
