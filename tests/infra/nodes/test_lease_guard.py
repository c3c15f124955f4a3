"""The guard of a machine: in virtual time with fakes, and as the process that the unit starts."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from proteus_spot.infra.clock import ScaledClock
from proteus_spot.infra.nodes import lease_guard
from proteus_spot.infra.nodes.lease_guard import LeaseGuard, MachineFiles, send_alarm
from proteus_spot.infra.storage.alarms import Alarm, read_alarms
from proteus_spot.infra.storage.blobs import BlobError, BlobMissing, Blobs
from proteus_spot.infra.storage.job_paths import JobPaths
from proteus_spot.infra.storage.leases import ENDING_S, FIRST_S, Lease, read_lease, write_leases
from tests.support.market_servers import wait_for
from tests.support.timeouts import PATIENCE

T0 = 1_456_790_400.0
HOUR_S = 3600.0


class VirtualClock:
    """Market time that moves when somebody waits, and runs a script of what happens then."""

    scale = 1.0

    def __init__(self) -> None:
        self.at_s = T0
        self.then: list[tuple[float, Callable[[], None]]] = []

    def now_s(self) -> float:
        return self.at_s

    def wait_until(self, at_s: float, wake: threading.Event | None = None) -> bool:
        due = sorted((when_s, act) for when_s, act in self.then if when_s <= at_s)
        self.at_s = max(self.at_s, due[0][0] if due else at_s)
        if due:
            self.then.remove(due[0])
            due[0][1]()
        return wake is not None and wake.is_set()


class Machine:
    """A guard in virtual time, and what it did."""

    def __init__(self, directory: Path) -> None:
        self.clock = VirtualClock()
        self.files = MachineFiles(directory)
        self.files.instance.write_text("i-0abc\n")
        self.lock = self.files.script_lock.open("wb")
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        self.alarms: list[tuple[float, str, str | None]] = []
        self.alarmed: list[str] = []
        self.ended_at_s: float | None = None
        self.read: Callable[[str], Lease] = missing
        self.guard: LeaseGuard | None = None

    def run(self) -> None:
        """Guard to the end of the machine."""
        self.guard = LeaseGuard("job", self.clock, self.files, lambda name: self.read(name), self.warn, self.end)
        self.guard.run()

    def warn(self, job_id: str, alarm: Alarm, webhook: str | None) -> None:
        self.alarmed.append(job_id)
        self.alarms.append((alarm.at_s - T0, alarm.reason, webhook))

    def end(self) -> None:
        self.ended_at_s = self.clock.at_s - T0

    def extend(self, lease: Lease) -> None:
        """What a look at the blob store finds."""
        assert self.guard is not None
        self.guard._take(lease)


def missing(instance_id: str) -> Lease:
    raise BlobMissing("is not there")


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    one = Machine(tmp_path)
    yield one
    one.lock.close()


def test_a_machine_that_no_tick_finds_ends_fifteen_minutes_after_its_launch(machine: Machine) -> None:
    machine.run()
    assert machine.ended_at_s == FIRST_S == 900
    assert [at_s for at_s, _, _ in machine.alarms] == [FIRST_S - ENDING_S, FIRST_S]
    assert "no tick extends the lease of this machine: it ends at 2016-03-01 00:15:00 UTC" in machine.alarms[0][1]
    assert "the lease of this machine has ended: the first lease" in machine.alarms[1][1]


def test_an_extended_lease_ends_later_and_the_alarm_is_raised_then(machine: Machine) -> None:
    machine.clock.then = [
        (T0 + 100, lambda: machine.extend(Lease(T0 + 100 + HOUR_S, "order", "a tick"))),
        (T0 + 3500, lambda: machine.extend(Lease(T0 + 3500 + HOUR_S, "order", "a late tick", webhook="http://hook"))),
    ]
    machine.run()
    assert machine.ended_at_s == 3500 + HOUR_S
    ends_soon = 100 + HOUR_S - ENDING_S
    assert [(at_s, hook) for at_s, _, hook in machine.alarms] == [
        (ends_soon, None),
        (3500 + HOUR_S - ENDING_S, "http://hook"),
        (3500 + HOUR_S, "http://hook"),
    ]
    assert machine.alarms[-1][1].endswith("has ended: a late tick")


def test_the_last_lease_of_an_ended_job_ends_without_an_alarm(machine: Machine) -> None:
    machine.clock.then = [(T0 + 60, lambda: machine.extend(Lease(T0 + 700, "order", "its job has ended", True)))]
    machine.run()
    assert (machine.ended_at_s, machine.alarms) == (700, [])


def test_a_lease_that_the_budget_cuts_is_no_sign_that_ticks_are_missing(machine: Machine) -> None:
    cut = Lease(T0 + 700, "order", "the job's budget lasts no longer", is_cut=True)
    assert Lease.from_json(cut.to_json()) == cut
    machine.clock.then = [(T0 + 60, lambda: machine.extend(cut))]
    machine.run()
    assert machine.ended_at_s == 700
    assert [(at_s, reason) for at_s, reason, _ in machine.alarms] == [
        (700, "the lease of this machine has ended: the job's budget lasts no longer")
    ]


def test_a_lease_for_another_job_is_kept_for_the_nodes_processes_and_alarms_are_that_jobs(machine: Machine) -> None:
    moved = Lease(T0 + HOUR_S, "next-taken-0", "a tick", job="next")
    assert Lease.from_json(moved.to_json()) == moved
    assert machine.files.job_id() is None
    machine.clock.then = [(T0 + 60, lambda: machine.extend(moved))]
    machine.run()
    assert machine.files.job_id() == "next"
    assert set(machine.alarmed) == {"next"}
    ended = Lease(T0 + HOUR_S + 10, reason="its job has ended it", is_last=True)
    machine.extend(ended)
    assert machine.files.job_id() == "next", "a lease that names no job sends it to none"


def test_a_guard_that_starts_again_knows_the_lease_of_before(machine: Machine) -> None:
    machine.files.keep_lease(Lease(T0 + 5000, "order", "a tick"))
    machine.run()
    assert machine.ended_at_s == 5000
    machine.clock.at_s, machine.alarms = T0 + 9000, []
    machine.run()  # it was off for long
    assert machine.ended_at_s == 9000


def test_a_restart_does_not_renew_the_first_lease(machine: Machine) -> None:
    machine.run()
    machine.clock.at_s = T0 + 500
    machine.run()
    assert machine.ended_at_s == FIRST_S


@pytest.mark.parametrize("is_regular", [True, False])
def test_a_machine_whose_script_has_ended_ends_at_once(machine: Machine, is_regular: bool) -> None:
    if is_regular:
        machine.files.script_done.touch()
    machine.clock.then = [(T0 + 70, machine.lock.close)]
    machine.run()
    assert machine.ended_at_s == 70
    reasons = [reason for _, reason, _ in machine.alarms]
    assert reasons == ([] if is_regular else ["the start script has ended (it failed, or the machine was rebooted)"])


def test_neither_a_store_that_hangs_nor_an_alarm_that_hangs_keeps_the_machine_on(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_guard, "_ALARM_REAL_S", 0.1)
    forever, reading, warning = threading.Event(), threading.Event(), threading.Event()

    def hang(begun: threading.Event) -> Lease:
        begun.set()
        forever.wait()
        raise BlobMissing("is not there")

    machine.read = lambda name: hang(reading)
    monkeypatch.setattr(machine, "warn", lambda *alarm: hang(warning))
    machine.run()
    assert machine.ended_at_s == FIRST_S
    assert reading.wait(10 * PATIENCE)
    assert warning.wait(10 * PATIENCE)
    forever.set()


@pytest.mark.parametrize(
    "record",
    [
        None,
        [],
        {"schema": 2, "until_s": 1.0, "order": "", "reason": ""},
        {"schema": 1, "order": "", "reason": ""},
        {"schema": 1, "until_s": "soon", "order": "", "reason": ""},
        {"schema": 1, "until_s": float("inf"), "order": "", "reason": ""},
    ],
)
def test_what_is_no_lease_of_ours_is_not_obeyed(tmp_path: Path, record: object) -> None:
    blobs = Blobs(tmp_path.as_uri())
    blobs.write_bytes(JobPaths("job").lease("i-1"), json.dumps(record).encode())
    with pytest.raises(BlobError, match=r"leases/i-1\.json"):
        read_lease(blobs, "job", "i-1")


def test_leases_are_written_together_and_one_that_fails_does_not_hold_up_the_others(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path.as_uri())
    leases = {f"i-{number}": Lease(T0 + number, "order", "a tick", webhook=None) for number in range(40)}
    (tmp_path / "jobs" / "job" / "leases" / "i-7.json").mkdir(parents=True)
    assert list(write_leases(blobs, "job", leases)) == ["i-7"]
    del leases["i-7"]
    assert {name: read_lease(blobs, "job", name) for name in leases} == leases
    assert write_leases(blobs, "job", {}) == {}
    taken = {"i-1": Lease(T0, "job-taken-0", job="job")}
    assert write_leases(blobs, "job", taken, {"i-1": "buyer"}) == {}
    assert read_lease(blobs, "buyer", "i-1") == taken["i-1"], "a machine looks where it was told at its launch"


class Hook(BaseHTTPRequestHandler):
    """A webhook that keeps what it gets, and answers with `status`."""

    status = 200
    bodies: list[dict[str, str]] = []  # noqa: RUF012 - emptied by the test

    def do_POST(self) -> None:
        self.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(self.status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.mark.parametrize("status", [200, 500])
def test_an_alarm_is_posted_and_stored_and_the_url_is_in_no_log(
    tmp_path: Path, status: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(Hook, "status", status)
    monkeypatch.setattr(Hook, "bodies", [])
    blobs, alarm = Blobs(tmp_path.as_uri()), Alarm("i-1", T0, "no tick")
    with ThreadingHTTPServer(("127.0.0.1", 0), Hook) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,)).start()
        send_alarm(blobs, "job", alarm, f"http://127.0.0.1:{server.server_port}/secret")
        server.shutdown()
    assert Hook.bodies == [
        {"text": "proteus: job job, machine i-1: no tick", "job": "job", "instance": "i-1", "reason": "no tick"}
    ]
    send_alarm(blobs, "job", alarm, "http://127.0.0.1:1/secret")
    assert read_alarms(blobs, "job") == [alarm]
    assert "secret" not in caplog.text
    assert len(caplog.records) == (1 if status == 200 else 2)


def test_an_alarm_waits_for_a_network_that_comes_up_late_and_is_posted_in_any_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    posted: list[str] = []
    monkeypatch.setattr(lease_guard, "_post", lambda hook, job_id, alarm: posted.append(hook))
    blobs, alarm = Blobs((tmp_path / "blobs").as_uri()), Alarm("i-1", T0, "rebooted")
    (tmp_path / "blobs").write_text("no directory yet")
    threading.Timer(0.5, (tmp_path / "blobs").unlink).start()
    send_alarm(blobs, "job", alarm, "http://hook")
    assert (read_alarms(blobs, "job"), posted) == ([alarm], ["http://hook"])
    monkeypatch.setattr(lease_guard, "_STORE_REAL_S", 0.0)
    (tmp_path / "other").write_text("no directory")
    with pytest.raises(BlobError):
        send_alarm(Blobs((tmp_path / "other").as_uri()), "job", alarm, "http://hook")
    assert len(posted) == 2


# As a process


class GuardProcess:
    """The command of the unit, on a machine whose `shutdown` leaves a file."""

    def __init__(self, directory: Path, blob_url: str, scale: float) -> None:
        self.files = MachineFiles(directory / "units")
        self.files.directory.mkdir()
        self.files.instance.write_text("i-0abc\n")
        self.shut_down = directory / "was-shut-down"
        command = directory / "bin" / "shutdown"
        command.parent.mkdir()
        command.write_text(f"#!/bin/sh\necho \"$@\" >'{self.shut_down}'\n")
        command.chmod(0o755)
        self.clock = ScaledClock.create(directory / "clock.json", T0, scale)
        self.lock = self.files.script_lock.open("wb")
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        self._command = [
            sys.executable,
            "-m",
            "proteus_spot.infra.nodes.lease_guard",
            "--job",
            "job",
            "--blob",
            blob_url,
        ]
        self._command += ["--region", "us-east-1", "--clock", str(directory / "clock.json")]
        self._environment = {
            **os.environ,
            "PATH": f"{command.parent}:{os.environ['PATH']}",
            "PROTEUS_UNIT_DIR": str(self.files.directory),
        }
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.process = subprocess.Popen(self._command, env=self._environment)
        wait_for(self.files.known_lease, "the guard's start")

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        self.lock.close()


@pytest.fixture
def guard(tmp_path: Path) -> Iterator[Callable[[str, float], GuardProcess]]:
    started: list[GuardProcess] = []

    def start(blob_url: str, scale: float) -> GuardProcess:
        started.append(GuardProcess(tmp_path, blob_url, scale))
        started[-1].start()
        return started[-1]

    yield start
    for one in started:
        one.close()


@pytest.mark.slow
def test_a_store_that_cannot_be_read_leaves_the_last_known_lease_also_after_a_restart(
    guard: Callable[[str, float], GuardProcess], tmp_path: Path
) -> None:
    blobs = Blobs((tmp_path / "blobs").as_uri())
    machine = guard(blobs.url, 60.0)
    lease = Lease(machine.clock.now_s() + 1e6, "order", "a tick")
    write_leases(blobs, "job", {"i-0abc": lease})
    wait_for(lambda: machine.files.known_lease() == lease, "the extension")
    (tmp_path / "blobs").rename(tmp_path / "away")
    (tmp_path / "blobs").write_text("no directory")
    assert machine.process is not None
    machine.process.send_signal(signal.SIGKILL)
    machine.process.wait()
    machine.start()
    machine.clock.jump_to(lease.until_s - 1000)
    assert not machine.shut_down.exists()
    machine.clock.jump_to(lease.until_s)
    wait_for(machine.shut_down.exists, "the end")


def test_after_a_reboot_the_guard_ends_the_machine_and_says_why(
    guard: Callable[[str, float], GuardProcess], tmp_path: Path
) -> None:
    blobs = Blobs((tmp_path / "blobs").as_uri())
    machine = guard(blobs.url, 1.0)
    machine.close()
    machine.start()  # by the unit; nobody runs user-data
    wait_for(machine.shut_down.exists, "the end")
    assert [alarm.reason for alarm in read_alarms(blobs, "job")] == [
        "the start script has ended (it failed, or the machine was rebooted)"
    ]
