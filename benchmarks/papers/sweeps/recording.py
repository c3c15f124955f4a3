"""A record of a sweep's trials, for simulations: each setting is trained once on this machine, to its last step."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from proteus_spot.benchmarks.papers.sweeps.records import write_record
from proteus_spot.benchmarks.papers.sweeps.simulation.record import RecordedTrials
from proteus_spot.bidding.tuning.sweep_plan import Direction
from proteus_spot.infra.clock import SystemClock
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.storage.blobs import Blobs
from proteus_spot.infra.storage.trial_paths import SweepPaths, TrialPaths
from proteus_spot.infra.trials.saved_states import unpack_state
from proteus_spot.infra.trials.state_store import fetch_newest_state
from proteus_spot.infra.trials.trial_documents import TrialReport
from proteus_spot.infra.urls import file_url
from proteus_spot.tasks.sweeps.local_sweep import LocalProgress, LocalSweep
from proteus_spot.tasks.sweeps.sweep_spec import SweepSpec


def record_trials(
    spec: SweepSpec,
    directory: Path,
    tell: Callable[[LocalProgress], None] = lambda progress: None,
    interrupted: Callable[[int], None] = lambda number: None,
) -> RecordedTrials | None:
    """Train every setting once, one after another, and return the record; None if a signal interrupted it.

    The same call goes on from there: finished trials stay.

    Parameters
    ----------
    spec : the sweep; its stopping rule, markets, budget and deadline play no part.
    directory : for the journal and the states of the trials.
    tell : called with what happens to trials.
    interrupted : called with the number of the signal that interrupted it.

    Raises
    ------
    InputError
        One line: what is wrong with the sweep, or the reason of a trial that failed.
    """
    whole = spec.model_copy(update={"stop": "none", "theta": 1.0, "mcnt": 1, "parallel": 1})
    run = LocalSweep(whole, directory, tell)
    run.open()
    if not run.run():
        interrupted(run.signal_number)
        return None
    blobs = Blobs(file_url(directory / "blobs"))
    settings = [trial["params"] for trial in run.result()["trials"]]
    for number, trial in enumerate(run.result()["trials"]):
        if trial["state"] == "failed":
            raise InputError(
                f"trial-{number:02d} failed: {trial['why'] or 'without a reason'}; fix it and record again"
            )
    paths = [SweepPaths(spec.job_id).trial(number) for number in range(len(settings))]
    reports = [_reports(blobs, trial) for trial in paths]
    values = np.full((len(settings), spec.max_trial_steps), np.nan)
    for number, trial_reports in enumerate(reports):
        for report in trial_reports:
            for step, value in report.values:
                values[number, step - 1] = np.nan if value is None else value
    last = [trial_reports[-1] for trial_reports in reports]
    return RecordedTrials(
        application=spec.sweep,
        metric=spec.metric.name,
        direction=Direction(spec.metric.direction),
        settings=tuple(settings),
        values=values,
        vcpus=np.array([len(os.sched_getaffinity(0))], dtype=np.int64),
        step_s=np.array([[_known(report.step_s)] for report in last]),
        step_cov=np.array([[report.step_cov or 0.0] for report in last]),
        state_bytes=np.array([report.state_bytes or 0 for report in last], dtype=np.int64),
        upload_s=np.array([report.upload_s or 0.0 for report in last]),
        restore_s=np.array([_restore_s(blobs, trial) for trial in paths]),
        seed=spec.seed,
    )


def save_record(target: Path, record: RecordedTrials) -> None:
    """Write a record as an .npz file; `InputError` if that fails."""
    write_record(target, record)


def _reports(blobs: Blobs, paths: TrialPaths) -> list[TrialReport]:
    """Return the reports of a trial's deployments, in their order; an interrupted record has several."""
    names = [name for name in blobs.list(paths.deployments) if name.endswith("/report.json")]
    reports = [TrialReport.from_json(blobs.read_json(name)) for name in names]
    return sorted(reports, key=lambda report: (report.restored_step, report.at_s))


def _known(step_s: float | None) -> float:
    if step_s is None or step_s <= 0:
        raise InputError("a trial was trained in no time: its steps cannot be replayed; give it more work a step")
    return step_s


def _restore_s(blobs: Blobs, paths: TrialPaths) -> float:
    """Return the seconds to fetch and load the newest state of a trial; 0 without one."""
    clock = SystemClock()
    with tempfile.TemporaryDirectory(prefix="proteus-record-") as scratch:
        began_s = clock.now_s()
        state = fetch_newest_state(blobs, paths, Path(scratch) / "state")
        if state is None:
            return 0.0
        unpack_state(Path(scratch) / "state")
        return max(clock.now_s() - began_s, 0.0)
