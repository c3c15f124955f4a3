"""The start script, run as a process with a stub for the interpreter."""

import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest

from proteus_spot.bidding.market.model import Tier
from proteus_spot.infra.ec2.user_data import MAX_BYTES, NodeBoot, lease_unit, user_data
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.nodes.lease_guard import MachineFiles
from proteus_spot.infra.nodes.lease_guard import parse as parse_guard
from proteus_spot.infra.nodes.main import parse
from proteus_spot.infra.nodes.trial_main import parse as parse_trial
from proteus_spot.infra.simulated_ec2.instances import command_of
from tests.support.timeouts import PATIENCE

BOOT = NodeBoot(job_id="job-1", blob_url="file:///blobs", tier=Tier.TRANSIENT, threads=2)


def boot(**changes: object) -> NodeBoot:
    return replace(BOOT, **changes)  # type: ignore[arg-type]


#: Writes its arguments and pid into a separate file, then acts as the file `behave` tells it.
STUB = """#!/bin/bash
[[ $(cat "$STUB_DIR/behave") == deaf ]] && trap '' TERM
echo "$@" >"$STUB_DIR/start-$$.part" && mv "$STUB_DIR/start-$$.part" "$STUB_DIR/start-$$"
case "$(cat "$STUB_DIR/behave")" in
  stay) exec sleep 600 ;;
  leave) exit 0 ;;
  fail) exit 3 ;;
  deaf) while :; do sleep 0.2; done ;;
  controller-leaves) case "$*" in *--controller*) exit 0 ;; *) exec sleep 600 ;; esac ;;
esac
"""


class Metadata(BaseHTTPRequestHandler):
    """Answers requests that carry the token with an id below /i-0abc."""

    def do_PUT(self) -> None:
        right = self.path == "/i-0abc/latest/api/token" and "X-aws-ec2-metadata-token-ttl-seconds" in self.headers
        self.answer(200 if right else 400, "tok=en==")

    def do_GET(self) -> None:
        right = self.headers["X-aws-ec2-metadata-token"] == "tok=en=="
        self.answer(200 if right else 401, "i-0abc" if self.path.endswith("/meta-data/instance-id") else "?")

    def answer(self, status: int, body: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture(scope="module")
def metadata_url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Metadata)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/i-0abc"
    server.shutdown()
    server.server_close()
    thread.join()


class Machine:
    """A script that runs in its own session, with the stub as interpreter."""

    def __init__(self, folder: Path, metadata_url: str) -> None:
        self.folder = folder
        self.stub = folder / "python stub"  # with a space, which must be quoted
        self.stub.write_text(STUB)
        self.stub.chmod(0o755)
        # Never the real ones, whatever the script does.
        (folder / "bin").mkdir()
        for name in ("shutdown", "systemctl"):
            command = folder / "bin" / name
            command.write_text(f"#!/bin/bash\necho \"$@\" >>'{folder}/{name}-was-called'\n")
            command.chmod(0o755)
        self.units = folder / "units"
        self.environment = {
            "PATH": f"{folder}/bin:/usr/bin:/bin",
            "PROTEUS_UNIT_DIR": str(self.units),
            "TMPDIR": str(folder),
            "STUB_DIR": str(folder),
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": metadata_url,
        }
        self.process: subprocess.Popen[bytes] | None = None

    def run(self, script: str, behave: str) -> subprocess.Popen[bytes]:
        (self.folder / "behave").write_text(behave)
        path = self.folder / "user-data"
        path.write_text(script)
        path.chmod(0o755)
        with (self.folder / "console.log").open("wb") as console:
            self.process = subprocess.Popen(
                [str(path)], env=self.environment, stdout=console, stderr=console, start_new_session=True
            )
        return self.process

    def boot(self, behave: str, **changes: object) -> subprocess.Popen[bytes]:
        return self.run(user_data(boot(**{"python": str(self.stub)} | changes)), behave)

    def calls(self, command: str) -> list[str]:
        """Return the arguments of every call of `shutdown` or `systemctl`."""
        path = self.folder / f"{command}-was-called"
        return path.read_text().splitlines() if path.exists() else []

    def starts(self) -> dict[int, str]:
        """Return the arguments of every start of the stub, by pid."""
        found = {}
        for path in self.folder.glob("start-*[0-9]"):
            found[int(path.name.removeprefix("start-"))] = path.read_text().strip()
        return found

    def members(self) -> list[int]:
        """Return the pids of the processes that the script left running."""
        assert self.process is not None
        living = []
        for one in psutil.process_iter():
            with contextlib.suppress(psutil.Error, ProcessLookupError):
                if os.getsid(one.pid) == self.process.pid and one.status() != psutil.STATUS_ZOMBIE:
                    living.append(one.pid)
        return living


@pytest.fixture
def machine(tmp_path: Path, metadata_url: str) -> Iterator[Machine]:
    one = Machine(tmp_path, metadata_url)
    yield one
    if one.process is not None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(one.process.pid, signal.SIGKILL)
        one.process.wait()


def eventually(condition: Callable[[], object], within_s: float = 10.0) -> None:
    end = time.monotonic() + within_s * PATIENCE
    while not condition():
        assert time.monotonic() < end, "the condition did not come true"
        time.sleep(0.01)


def test_the_node_is_started_with_its_options_and_the_name_from_the_metadata_service(machine: Machine) -> None:
    machine.boot("leave", poll_s=0.25).wait(10 * PATIENCE)
    (arguments,) = machine.starts().values()
    assert arguments == (
        "-P -m proteus_spot.infra.nodes.main "
        "--job job-1 --blob file:///blobs --tier transient --threads 2 --poll-s 0.25 --name i-0abc"
    )


def test_a_killed_node_is_started_again(machine: Machine) -> None:
    process = machine.boot("stay")
    eventually(machine.starts)
    (first,) = machine.starts()
    os.kill(first, signal.SIGKILL)
    eventually(lambda: len(machine.starts()) == 2)
    assert process.poll() is None


def test_a_node_that_starts_again_works_for_the_job_that_the_guard_has_kept(machine: Machine) -> None:
    machine.boot("stay")
    eventually(machine.starts)
    (first,) = machine.starts()
    MachineFiles(machine.units).keep_job("next-job")
    os.kill(first, signal.SIGKILL)
    eventually(lambda: len(machine.starts()) == 2)
    (again,) = (arguments for pid, arguments in machine.starts().items() if pid != first)
    assert parse(again.split()[3:]).job == "next-job"


def test_a_node_that_ends_well_ends_the_machine_and_is_not_started_again(machine: Machine) -> None:
    assert machine.boot("leave").wait(10 * PATIENCE) == 0
    assert len(machine.starts()) == 1
    assert machine.members() == []


@pytest.mark.slow
def test_restarts_come_ever_more_slowly(machine: Machine) -> None:
    machine.boot("fail")
    eventually(lambda: len(machine.starts()) == 3)
    console = (machine.folder / "console.log").read_text()
    assert "ended with 3; again in 1 s" in console
    assert "ended with 3; again in 2 s" in console


@pytest.mark.parametrize("behave", ["stay", "fail"])
def test_sigterm_ends_all(machine: Machine, behave: str) -> None:
    process = machine.boot(behave, controller=True, tier=Tier.RELIABLE)
    eventually(lambda: len(machine.starts()) == 2)
    process.terminate()
    assert process.wait(10 * PATIENCE) == 0
    assert machine.members() == []


def test_a_node_deaf_to_sigterm_is_killed_after_the_grace(machine: Machine) -> None:
    process = machine.boot("deaf", grace_s=1)
    eventually(machine.starts)
    began = time.monotonic()
    process.terminate()
    assert process.wait(10 * PATIENCE) == 0
    assert 0.8 < time.monotonic() - began < 20, "after the grace of the options, not the usual one"
    eventually(lambda: machine.members() == [])  # its last `sleep 0.2` may still run out


def test_the_first_reliable_node_runs_a_controller_and_a_worker(machine: Machine) -> None:
    machine.boot("stay", controller=True, tier=Tier.RELIABLE)
    eventually(lambda: len(machine.starts()) == 2)
    ends = sorted(arguments.split("--name i-0abc")[1].strip() for arguments in machine.starts().values())
    assert ends == ["", "--controller"]
    for pid in list(machine.starts()):
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: len(machine.starts()) == 4)


def test_the_end_of_the_controller_ends_the_worker_beside_it(machine: Machine) -> None:
    assert machine.boot("controller-leaves", controller=True, tier=Tier.RELIABLE).wait(15 * PATIENCE) == 0
    assert machine.members() == []


def test_the_guard_is_installed_first_and_runs_while_the_script_does(machine: Machine) -> None:
    files = MachineFiles(machine.units)
    process = machine.boot("stay")
    eventually(machine.starts)
    assert machine.calls("systemctl") == ["daemon-reload", "enable --now proteus-lease.service"]
    assert (machine.units / "proteus-lease.service").read_text() == lease_unit(boot(python=str(machine.stub))) + "\n"
    assert files.instance_id() == "i-0abc"
    assert files.script_runs()
    process.terminate()
    assert process.wait(10 * PATIENCE) == 0
    assert not files.script_runs()
    assert files.script_done.exists()
    assert machine.calls("shutdown") == ["-h now"]


def test_a_killed_script_counts_as_running_while_its_node_does(machine: Machine) -> None:
    files = MachineFiles(machine.units)
    process = machine.boot("stay")
    eventually(machine.starts)
    process.kill()
    process.wait()
    assert files.script_runs()  # the node trains on
    os.killpg(process.pid, signal.SIGKILL)  # as a reboot does
    eventually(lambda: not files.script_runs())
    assert not files.script_done.exists()


def test_a_script_that_fails_early_leaves_the_guard_behind(machine: Machine) -> None:
    script = user_data(boot(python=str(machine.stub))).replace("NAME=''\n", "exit 1\n")
    assert machine.run(script, "stay").wait(10 * PATIENCE) == 1
    files = MachineFiles(machine.units)
    assert machine.calls("systemctl") == ["daemon-reload", "enable --now proteus-lease.service"]
    assert (files.script_runs(), files.script_done.exists(), machine.calls("shutdown")) == (False, False, [])


def test_a_machine_whose_guard_cannot_be_installed_ends_at_once(machine: Machine) -> None:
    (machine.folder / "bin" / "systemctl").write_text("#!/bin/bash\nexit 1\n")
    assert machine.boot("stay").wait(10 * PATIENCE) == 1
    assert machine.calls("shutdown") == ["-h now"]
    assert machine.starts() == {}


def test_outside_of_a_machine_nothing_is_installed_or_shut_down(machine: Machine) -> None:
    del machine.environment["PROTEUS_UNIT_DIR"]
    machine.boot("leave").wait(10 * PATIENCE)
    assert not machine.units.exists()
    assert machine.calls("shutdown") + machine.calls("systemctl") == []


def test_the_unit_is_one_that_systemd_accepts(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    python = tmp_path / "py thon"
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    node = boot(python=str(python), blob_url='s3://bucket/50%25 "$HOME"', clock="/a b/clock.json")
    unit = tmp_path / "proteus-lease.service"
    unit.write_text(lease_unit(node))
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )
    assert (checked.returncode, [line for line in checked.stderr.splitlines() if unit.name in line]) == (0, [])
    assert command_of(unit.read_text())[:4] == [str(python), "-P", "-m", "proteus_spot.infra.nodes.lease_guard"]
    assert parse_guard(command_of(unit.read_text())[4:]).blob == node.blob_url


@pytest.mark.parametrize("tier", list(Tier))
def test_the_machine_of_a_trial_runs_its_supervisor_under_the_guard(tier: Tier, machine: Machine) -> None:
    script = user_data(boot(trial=(7, "job-1-t7-1"), tier=tier, poll_s=0.25))
    assert lease_unit(BOOT) in script
    machine.boot("leave", trial=(7, "job-1-t7-1"), tier=tier, poll_s=0.25).wait(10 * PATIENCE)
    (words,) = (line.split() for line in machine.starts().values())
    assert words[:3] == ["-P", "-m", "proteus_spot.infra.nodes.trial_main"]
    options = parse_trial(words[3:])
    assert (options.job, options.trial, options.deployment) == ("job-1", 7, "job-1-t7-1")
    assert (options.blob, options.name, options.threads, options.poll_s) == ("file:///blobs", "i-0abc", 2, 0.25)
    assert options.no_notices == (tier is Tier.RELIABLE)
    assert machine.calls("shutdown") == ["-h now"], "a machine whose deployment has ended is not paid for"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AWS_SECRET_ACCESS_KEY", "x"),
        ("PREFECT_API_URL", "http://server/api"),
        ("PROTEUS_DATABASE_URL", "postgresql://h/db"),
        ("MY_PASSWORD", "x"),
        ("PROTEUS_MIRROR", "https://user:word@host/"),
    ],
)
def test_secrets_are_refused(name: str, value: str) -> None:
    with pytest.raises(InputError, match=name):
        user_data(NodeBoot("job-1", "file:///blobs", Tier.TRANSIENT, environment={name: value}))


def test_values_are_quoted_and_the_limit_of_ec2_is_kept(machine: Machine) -> None:
    bait = f'$(touch {machine.folder}/bait) \'and "quotes"'
    machine.boot("leave", blob_url=f"file:///{bait}", environment={"PROTEUS_NOTE": bait}).wait(10 * PATIENCE)
    (arguments,) = machine.starts().values()
    assert bait in arguments
    assert not (machine.folder / "bait").exists()
    with pytest.raises(InputError, match="EC2 takes"):
        user_data(NodeBoot("job-1", "file:///b", Tier.TRANSIENT, environment={"PROTEUS_NOTE": "x" * MAX_BYTES}))


@pytest.mark.parametrize(
    "changes",
    [
        {"job_id": "No"},
        {"blob_url": "file:///a\nRestart=no"},
        {"threads": 0},
        {"controller": True},
        {"environment": {"not a name": "x"}},
        {"trial": (-1, "job-1-t7-1")},
        {"trial": (7, "No Order")},
        {"trial": (7, "job-1-t7-1"), "tier": Tier.RELIABLE, "controller": True},
    ],
)
def test_impossible_nodes_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(InputError):
        user_data(boot(**changes))
