"""A supervisor and a real process of a trial: it trains, stops, fails in every way, and is killed."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from proteus_spot.infra.clock import ScaledClock, SystemClock
from proteus_spot.infra.nodes.lease_guard import MachineFiles
from proteus_spot.infra.storage.blobs import Blobs
from proteus_spot.infra.storage.leases import ENDING_S, Lease
from proteus_spot.infra.storage.trial_paths import SweepPaths, TrialPaths
from proteus_spot.infra.trials.saved_states import unpack_state
from proteus_spot.infra.trials.state_store import fetch_newest_state, stored_states, upload_state
from proteus_spot.infra.trials.supervisor import TrialJob, TrialSupervisor
from proteus_spot.infra.trials.trial_documents import TrialOrders, TrialReport, TrialSetting

FILE = Path(__file__).with_name("trial_files.py")
PATHS = TrialPaths("digits", 7)


class Sweep:
    """What the flow writes for a trial, and what its machine answers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.blobs = Blobs(f"file://{folder}/blobs")
        self.blobs.write_set(SweepPaths("digits").code, {FILE.name: FILE.read_bytes()})
        self.deployments = 0

    def deploy(self, function: str, until_step: int = 10, steps: int = 10, **params: Any) -> str:
        """Write the setting of the trial and the orders of a new deployment; return its order id."""
        setting = TrialSetting(params, 3, steps, f"trial_files:{function}", "loss", checkpoint_minutes=60.0)
        self.blobs.write_json(PATHS.setting, setting.to_json())
        self.deployments += 1
        order = f"digits-t7-{self.deployments}"
        self.order(order, until_step)
        return order

    def order(self, order: str, until_step: int, pause: bool = False) -> None:
        """Write the orders of a deployment."""
        self.blobs.write_json(PATHS.orders(order), TrialOrders(until_step, pause, "budget" if pause else "").to_json())

    def supervise(self, order: str) -> TrialSupervisor:
        """Return the supervisor of a deployment."""
        job = TrialJob("digits", 7, order, threads=1, poll_s=0.05, report_s=0.1)
        return TrialSupervisor(job, self.blobs, SystemClock(), directory=self.folder / "machine")

    def run(self, function: str, until_step: int = 10, **params: Any) -> TrialReport:
        """Run a deployment to its end; return the last report, as it was written."""
        order = self.deploy(function, until_step, **params)
        last = asyncio.run(self.supervise(order).run())
        assert self.report(order) == last
        assert "\n" not in last.why
        return last

    def report(self, order: str) -> TrialReport:
        """Return the report of a deployment."""
        return TrialReport.from_json(self.blobs.read_json(PATHS.report(order)))

    def state(self) -> tuple[int, Any]:
        """Return step and content of the newest uploaded state."""
        state = fetch_newest_state(self.blobs, PATHS, self.folder / "fetched")
        assert state is not None
        return state.step, unpack_state(self.folder / "fetched")


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    return Sweep(tmp_path)


def test_a_trial_pauses_at_its_target_and_goes_on_elsewhere_from_its_state(sweep: Sweep) -> None:
    first = sweep.run("train", until_step=4)
    assert (first.ended, first.why, first.saved_step) == ("paused", "", 4)
    assert first.values == tuple((step, 1.0 / step) for step in range(1, 5))
    assert first.step_s is not None
    assert sweep.state() == (4, {"total": 10})
    second = sweep.run("train")
    assert (second.ended, second.saved_step, second.restored_step) == ("finished", 10, 4)
    assert [step for step, _ in second.values] == list(range(5, 11))
    assert sweep.state() == (10, {"total": 55})
    assert not (sweep.folder / "machine").exists()
    third = sweep.run("train")  # nothing is left to train
    assert (third.ended, third.values) == ("finished", ())


@pytest.mark.parametrize(
    ("function", "ended", "why", "values", "saved_step"),
    [
        ("raises", "failed", "ValueError: no luck at all (trial_files.py, line 30, in raises)", 3, 3),
        ("never_reports", "failed", "the function returned without a report; call trial.report(step, loss=...)", 0, 10),
        ("never_steps", "failed", "the function returned without a step; loop over trial.steps()", 0, None),
        ("reports_another_metric", "failed", "step 1 has no loss, the metric of the sweep; it has accuracy", 0, None),
        (
            "saves_itself",
            "failed",
            "type proteus_spot.infra.trials.trial.Trial cannot be saved without pickle",
            1,
            None,
        ),
        ("exits", "failed", "the function called exit(0)", 0, None),
        ("is_killed", "failed", "was killed by SIGKILL (often: out of memory): about to be killed", 0, None),
        ("crashes", "failed", "was killed by SIGSEGV", 0, None),
        ("breaks_out", "failed", "ended with exit code 3", 0, None),
        ("missing", "failed", "trial trial_files:missing: module trial_files has no function missing", 0, None),
    ],
)
def test_a_function_that_fails_is_one_line_and_its_state_is_not_lost(
    function: str, ended: str, why: str, values: int, saved_step: int | None, sweep: Sweep
) -> None:
    last = sweep.run(function)
    assert (last.ended, len(last.values), last.saved_step) == (ended, values, saved_step)
    assert why in last.why


def test_a_function_that_hangs_is_killed_and_its_state_is_not_lost(sweep: Sweep) -> None:
    order = sweep.deploy("hangs")

    async def story() -> TrialReport:
        supervisor = sweep.supervise(order)
        running = asyncio.create_task(supervisor.run())
        await _until(lambda: _values(sweep, order) == 2)
        supervisor._progress.patience_s = 0.0  # not before: a process may take long to start
        return await running

    last = asyncio.run(story())
    assert (last.ended, len(last.values), last.saved_step) == ("failed", 2, 2)
    assert last.why.startswith("step 2 has not ended or reported for ")
    assert last.why.endswith("raise PROTEUS_PROGRESS_MINUTES if steps take that long")


def test_nan_is_reported_as_no_number_and_does_not_end_the_trial(sweep: Sweep) -> None:
    last = sweep.run("reports_nan")
    assert last.ended == "finished"
    assert [value for _, value in last.values] == [1.0] + 9 * [None]


def test_a_function_that_removes_its_states_loses_them_and_nothing_else(sweep: Sweep) -> None:
    last = sweep.run("removes_its_states")
    assert (last.ended, len(last.values), last.saved_step) == ("finished", 10, None)
    assert stored_states(sweep.blobs, PATHS) == []


def test_processes_that_a_function_leaves_end_with_it(sweep: Sweep) -> None:
    pid_file = sweep.folder / "pid"
    assert sweep.run("leaves_processes", pid_file=str(pid_file)).ended == "finished"
    state = Path(f"/proc/{pid_file.read_text()}/stat")
    assert not state.exists() or state.read_text().split()[2] == "Z"


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while not condition():
            await asyncio.sleep(0.02)


def _values(sweep: Sweep, order: str) -> int:
    name = PATHS.report(order)
    return len(sweep.report(order).values) if sweep.blobs.exists(name) else 0


@pytest.mark.parametrize("how", ["notice", "pause", "sigterm"])
def test_a_trial_stops_after_its_step_and_uploads(how: str, sweep: Sweep) -> None:
    order = sweep.deploy("train", until_step=10**6, steps=10**6, pause_s=0.02)
    noticed = asyncio.Event()

    async def poll() -> float | None:
        return 100.0 if noticed.is_set() else None

    async def story() -> TrialReport:
        supervisor = sweep.supervise(order)
        supervisor._poll_notice = poll
        running = asyncio.create_task(supervisor.run())
        await _until(lambda: _values(sweep, order) > 2)
        if how == "notice":
            noticed.set()
        elif how == "pause":
            sweep.order(order, 10**6, pause=True)
        else:
            supervisor.stop("SIGTERM")
        last = await running
        assert supervisor.is_noticed == (how == "notice")
        return last

    last = asyncio.run(story())
    why = {"notice": "eviction notice", "pause": "budget", "sigterm": "SIGTERM"}[how]
    assert (last.ended, last.why) == ("paused", why)
    assert last.saved_step == last.values[-1][0]
    step, state = sweep.state()
    assert state["total"] == step * (step + 1) // 2


def test_the_target_may_rise_while_the_trial_trains(sweep: Sweep) -> None:
    gate = sweep.folder / "gate"
    order = sweep.deploy("waits_for_a_file", until_step=5, steps=8, gate=str(gate))

    async def story() -> TrialReport:
        supervisor = sweep.supervise(order)
        running = asyncio.create_task(supervisor.run())
        await _until(lambda: _values(sweep, order) == 2)
        sweep.order(order, 8)
        await _until(lambda: supervisor._until_step == 8)
        gate.touch()
        return await running

    last = asyncio.run(story())
    assert (last.ended, last.saved_step) == ("finished", 8)


def test_the_values_up_to_a_state_are_reported_before_it_is_uploaded(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deployment that goes on from it would not report them again."""
    reported = []

    def upload(blobs: Blobs, paths: TrialPaths, deployment: str, step: int, folder: Path) -> None:
        reported.append((step, [done for done, _ in sweep.report(deployment).values if done <= step]))
        upload_state(blobs, paths, deployment, step, folder)

    monkeypatch.setattr("proteus_spot.infra.trials.supervisor.upload_state", upload)
    order = sweep.deploy("train", until_step=4)
    job = TrialJob("digits", 7, order, threads=1, poll_s=0.05, report_s=3600.0)
    asyncio.run(TrialSupervisor(job, sweep.blobs, SystemClock(), directory=sweep.folder / "machine").run())
    assert reported
    assert all(values == list(range(1, step + 1)) for step, values in reported)


def _machine(sweep: Sweep, order: str) -> "subprocess.Popen[bytes]":
    options: Mapping[str, Any] = {
        "--job": "digits",
        "--trial": 7,
        "--deployment": order,
        "--blob": sweep.blobs.url,
        "--name": "i-1",
        "--poll-s": 0.05,
    }
    words = [str(word) for pair in options.items() for word in pair]
    (sweep.folder / "tmp").mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-m", "proteus_spot.infra.nodes.trial_main", *words, "--no-notices"],
        env={
            **os.environ,
            "TMPDIR": str(sweep.folder / "tmp"),
            "PROTEUS_CLOCK": str(sweep.folder / "clock"),
            "PROTEUS_UNIT_DIR": str(sweep.folder / "tmp"),
        },
    )


def _process_of_trial(machine: "subprocess.Popen[bytes]") -> psutil.Process:
    (found,) = [
        child
        for child in psutil.Process(machine.pid).children()
        if "proteus_spot.infra.trials.process" in child.cmdline()
    ]
    return found


def _is_gone(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_a_machine_whose_supervisor_is_killed_goes_on_from_its_uploaded_state(sweep: Sweep) -> None:
    ScaledClock.create(sweep.folder / "clock", 1e9, 1000.0)
    order = sweep.deploy("train", until_step=10**6, steps=10**6, pause_s=0.01)
    setting = json.loads(sweep.blobs.read_bytes(PATHS.setting)) | {"checkpoint_minutes": 0.1}
    sweep.blobs.write_json(PATHS.setting, setting)
    machine = _machine(sweep, order)
    try:
        asyncio.run(_until(lambda: bool(stored_states(sweep.blobs, PATHS)) and _values(sweep, order) > 5))
        process = _process_of_trial(machine)
        machine.kill()
        machine.wait()
        asyncio.run(_until(lambda: _is_gone(process)))  # the kernel kills it with its supervisor
    finally:
        machine.kill()
    step, _ = sweep.state()
    before = dict(sweep.report(order).values)
    sweep.order(order, step + 40)
    machine = _machine(sweep, order)
    assert machine.wait(120) == 0
    last = sweep.report(order)
    assert (last.ended, last.saved_step, last.restored_step) == ("paused", step + 40, step)
    assert last.repeated_steps == sum(done > step for done in before)
    assert [done for done, _ in last.values] == list(range(1, step + 41)), "every step is reported, the first ones too"
    final, state = sweep.state()
    assert state["total"] == final * (final + 1) // 2
    machine = _machine(sweep, order)  # a deployment that has ended does not begin again
    assert machine.wait(120) == 0
    assert sweep.report(order) == last


def test_a_process_that_hangs_ends_with_its_supervisor(sweep: Sweep) -> None:
    ScaledClock.create(sweep.folder / "clock", 1e9, 1000.0)
    order = sweep.deploy("hangs")
    machine = _machine(sweep, order)
    try:
        asyncio.run(_until(lambda: _values(sweep, order) == 2))
        process = _process_of_trial(machine)
    finally:
        machine.kill()
        machine.wait()
    asyncio.run(_until(lambda: _is_gone(process)))  # by the kernel: it writes nothing that could fail


@pytest.mark.parametrize("cause", ["SIGTERM", "lease"])
def test_a_machine_that_has_to_end_saves_its_state(cause: str, sweep: Sweep) -> None:
    clock = ScaledClock.create(sweep.folder / "clock", 1e9, 1000.0)
    order = sweep.deploy("train", until_step=10**6, steps=10**6, pause_s=0.01)
    machine = _machine(sweep, order)
    try:
        asyncio.run(_until(lambda: _values(sweep, order) > 5))
        if cause == "SIGTERM":
            machine.send_signal(signal.SIGTERM)
        else:
            MachineFiles(sweep.folder / "tmp").keep_lease(Lease(clock.now_s() + ENDING_S, reason="no tick"))
        assert machine.wait(120) == 0
    finally:
        machine.kill()
    last = sweep.report(order)
    assert (last.ended, last.saved_step) == ("paused", last.values[-1][0])
    assert last.why.startswith("SIGTERM" if cause == "SIGTERM" else "no tick extends the lease of its machine")
