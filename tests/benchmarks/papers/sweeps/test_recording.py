"""A sweep's trials recorded by real processes, interrupted and continued; and a trial that fails."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from proteus_spot.benchmarks.papers.sweeps.record import record
from proteus_spot.benchmarks.papers.sweeps.recording import record_trials
from proteus_spot.benchmarks.papers.sweeps.records import read_record
from proteus_spot.infra.errors import InputError
from proteus_spot.tasks.sweeps.local_sweep import LocalProgress
from tests.tasks.sweeps.test_local_sweep import spec

SWEEP = """
trial: mine:train
code: {folder}/mine.py
data: {folder}/rows.csv
space: {{rate: {{choice: [2, 1]}}, waits: {{choice: [false]}}}}
metric: {{name: loss}}
max_trial_steps: 20
stop: asha
"""


def test_each_setting_is_trained_to_its_end_and_its_curve_and_step_times_are_recorded(tmp_path: Path) -> None:
    signals: list[int] = []

    def interrupt(progress: LocalProgress) -> None:
        if progress.trial == 1 and not signals:
            signal.raise_signal(signal.SIGINT)

    described = spec(tmp_path)
    assert record_trials(described, tmp_path / "runs", interrupt, signals.append) is None
    assert signals == [signal.SIGINT]
    (tmp_path / "digits.yaml").write_text(SWEEP.format(folder=tmp_path))
    target, runs = str(tmp_path / "a.npz"), str(tmp_path / "runs")
    done = CliRunner().invoke(record, [str(tmp_path / "digits.yaml"), target, "--dir", runs])
    assert done.exit_code == 0, done.output
    assert "2 trials of 20 steps" in done.output
    found = read_record(tmp_path / "a.npz")
    assert [dict(setting) for setting in found.settings] == [{"rate": 2, "waits": False}, {"rate": 1, "waits": False}]
    assert np.allclose(found.values, np.array([[2.0], [1.0]]) / np.arange(1, 21))
    assert found.vcpus.tolist() == [len(os.sched_getaffinity(0))]
    assert (found.step_s > 0).all()
    assert (found.state_bytes > 0).all()
    assert (found.upload_s > 0).all()
    assert (found.restore_s > 0).all()
    assert found.application == "digits"


def test_a_trial_that_fails_ends_the_record_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"trial-00 failed: .*no luck.*; fix it") as error:
        record_trials(spec(tmp_path, rates=(3,)), tmp_path / "runs")
    assert "\n" not in str(error.value)
