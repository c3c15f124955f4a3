"""The machines of the simulated EC2: processes that run user-data, each in its own session, and end as a whole.

A machine has a directory of systemd units, which PROTEUS_UNIT_DIR names, and its own `systemctl` and `shutdown`. The
units are started when the script has installed them, and again when they end; `shutdown` ends the machine. As on EC2,
user-data runs once: a machine that is rebooted, or started after a stop, runs its units alone, on the disk that it had.

As on EC2, too, a machine stays on when its script has exited: it lives until it is terminated, taken or shut down.
User-data that is not a script (no ``#!``) runs nothing.
"""

import asyncio
import contextlib
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from proteus_spot.infra.simulated_ec2.process_reaper import INSTANCE_MARK, MARKET_MARK, kill_until_gone

#: Real seconds between the SIGTERM of a termination and its SIGKILL.
GRACE_S = 2.0
UNIT_DIR_VARIABLE = "PROTEUS_UNIT_DIR"
#: Real seconds after which a unit that has ended is started again.
_RESTART_S = 1.0
#: Commands of a machine: `systemctl` starts what is installed, `shutdown` ends the machine. Each leaves a file.
_COMMANDS = {name: f'#!/bin/sh\n: >"$HOME/{name}-was-called"\n' for name in ("systemctl", "shutdown")}


class _Machine:
    """A running script and the processes it started; after a reboot there is no script (`process` None)."""

    def __init__(
        self, instance_id: str, process: subprocess.Popen[bytes] | None, home: Path, environment: Mapping[str, str]
    ) -> None:
        self.instance_id = instance_id
        self.process = process
        self.home = home
        self.ending = False
        self.killed = False
        #: Whether it boots again when all its processes are gone.
        self.reboots = False
        self.environment = environment
        #: Process of each started unit, and when one that has ended was seen so.
        self._units: dict[str, subprocess.Popen[bytes]] = {}
        self._ended_at_s: dict[str, float] = {}

    @property
    def was_shut_down(self) -> bool:
        """Whether `shutdown` was called on the machine."""
        return (self.home / "shutdown-was-called").exists()

    def run_units(self, now_s: float) -> None:
        """Start the units that `systemctl` was called for, and those again that have ended."""
        if not (self.home / "systemctl-was-called").exists():
            return
        for unit in sorted((self.home / "units").glob("*.service")):
            process = self._units.get(unit.name)
            if process is not None and process.poll() is None:
                continue
            ended_at_s = self._ended_at_s.setdefault(unit.name, now_s) if process is not None else now_s - _RESTART_S
            if now_s - ended_at_s >= _RESTART_S:
                self._ended_at_s.pop(unit.name, None)
                self._start_unit(unit)

    def _start_unit(self, unit: Path) -> None:
        with (self.home / "console.log").open("ab") as console:
            try:
                self._units[unit.name] = subprocess.Popen(
                    command_of(unit.read_text()),
                    cwd=self.home,
                    env=self.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=console,
                    stderr=console,
                    start_new_session=True,
                )
            except (OSError, ValueError) as error:
                console.write(f"{unit.name} could not be started: {error}\n".encode())

    def wait(self) -> None:
        """Reap the processes that were started here; all must have been killed."""
        for process in self.processes:
            process.wait()

    @property
    def processes(self) -> list[subprocess.Popen[bytes]]:
        """The processes that were started here, each the leader of a session."""
        return [*([] if self.process is None else [self.process]), *self._units.values()]

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the script; after a reboot, to the units."""
        for process in [self.process] if self.process is not None else self._units.values():
            with contextlib.suppress(ProcessLookupError):  # the whole group has ended
                os.killpg(process.pid, number)


class Machines:
    """All machines of one endpoint. Every method but `close` is called on the event loop.

    Parameters
    ----------
    work_dir : has the commands of machines in ``bin``, and a directory of each instance with user-data, console.log
        and home.
    market_id : unique to this endpoint; marks its processes.
    passed : environment variables of every machine, beside the few of a fresh login.
    """

    def __init__(self, work_dir: Path, market_id: str, passed: Mapping[str, str]) -> None:
        self._work_dir = work_dir
        #: Directory of the commands that every machine has.
        self._commands = work_dir / "bin"
        self._market_id = market_id
        self._passed = dict(passed)
        self._machines: dict[str, _Machine] = {}
        self._burials: asyncio.Task[None] | None = None
        self._reaper: subprocess.Popen[bytes] | None = None

    def open(self) -> None:
        """Start the reaper, which kills the machines if this process is killed."""
        self._commands.mkdir(parents=True, exist_ok=True)
        for name, text in _COMMANDS.items():
            (self._commands / name).write_text(text)
            (self._commands / name).chmod(0o700)
        self._reaper = subprocess.Popen(
            [sys.executable, "-I", str(Path(__file__).with_name("process_reaper.py")), self._market_id],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def start(self, instance_id: str, user_data: str, metadata_url: str) -> None:
        """Boot a machine: run its user-data, if that is a script."""
        home = self._work_dir / instance_id
        for name in ("tmp", "units"):
            (home / name).mkdir(parents=True, exist_ok=True)  # exists if the machine boots again after a restart
        for name in _COMMANDS:
            (home / f"{name}-was-called").unlink(missing_ok=True)
        script = home / "user-data"
        script.write_text(user_data)
        script.chmod(0o700)
        with (home / "console.log").open("ab") as console:
            if not user_data.startswith("#!"):
                console.write(b"user-data is not a script (it does not begin with #!): nothing was run\n")
                return
            environment = self._environment(instance_id, home, metadata_url)
            try:
                process = subprocess.Popen(
                    [str(script)],
                    cwd=home,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=console,
                    stderr=console,
                    start_new_session=True,
                )
            except OSError as error:
                console.write(f"user-data could not be run: {error}\n".encode())
                return
        self._machines[instance_id] = _Machine(instance_id, process, home, environment)
        self._notify_reaper(f"+{process.pid}\n")

    def reboot(self, instance_id: str, metadata_url: str) -> None:
        """Kill all processes of a machine, then boot it: its units run, its user-data does not."""
        machine = self._machines.get(instance_id)
        if machine is not None:
            machine.reboots = True
            self._kill(machine)
        elif (self._work_dir / instance_id).exists():
            home = self._work_dir / instance_id
            self._boot(instance_id, self._environment(instance_id, home, metadata_url))

    def _boot(self, instance_id: str, environment: Mapping[str, str]) -> None:
        home = self._work_dir / instance_id
        (home / "shutdown-was-called").unlink(missing_ok=True)
        self._machines[instance_id] = _Machine(instance_id, None, home, environment)

    def kill(self, instance_id: str) -> None:
        """Send SIGKILL to all processes of a machine now; its disk stays."""
        machine = self._machines.get(instance_id)
        if machine is not None:
            machine.reboots = False
            self._kill(machine)

    def _kill(self, machine: _Machine) -> None:
        machine.signal(signal.SIGKILL)
        machine.ending = machine.killed = True
        if self._burials is None or self._burials.done():
            self._burials = asyncio.create_task(self._bury())

    def terminate(self, instance_id: str) -> None:
        """Shut a machine down: SIGTERM, and after `GRACE_S` SIGKILL. Does not wait."""
        machine = self._machines.get(instance_id)
        if machine is not None:
            machine.reboots = False
        if machine is not None and not machine.ending:
            machine.ending = True
            machine.signal(signal.SIGTERM)
            asyncio.get_running_loop().call_later(GRACE_S, self.kill, instance_id)

    def collect(self) -> list[str]:
        """Start the units of the machines; return those that were shut down since the last call, and end them."""
        shut_down = []
        for machine in [machine for machine in self._machines.values() if not machine.ending]:
            if machine.was_shut_down:
                shut_down.append(machine.instance_id)
                self.terminate(machine.instance_id)
            else:
                machine.run_units(asyncio.get_running_loop().time())
        return shut_down

    def close(self) -> None:
        """Kill every process of the machines and wait until all have ended."""
        for machine in self._machines.values():
            machine.signal(signal.SIGKILL)
        sessions = {process.pid for machine in self._machines.values() for process in machine.processes}
        kill_until_gone(self._market_id, sessions)
        for machine in self._machines.values():
            machine.wait()
        self._machines.clear()
        if self._reaper is not None:
            assert self._reaper.stdin is not None
            self._reaper.stdin.close()
            self._reaper.wait()
            self._reaper = None

    def _environment(self, instance_id: str, home: Path, metadata_url: str) -> dict[str, str]:
        return {
            "PATH": f"{self._commands}:{os.environ.get('PATH', os.defpath)}",
            "HOME": str(home),
            "TMPDIR": str(home / "tmp"),
            "LANG": os.environ.get("LANG", "C.UTF-8"),
            **self._passed,
            UNIT_DIR_VARIABLE: str(home / "units"),
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": f"{metadata_url}/{instance_id}",
            MARKET_MARK: self._market_id,
            INSTANCE_MARK: instance_id,
        }

    async def _bury(self) -> None:
        """Kill what left the sessions of killed machines, reap and forget them; in batches, as each scan is costly."""
        while dead := [machine for machine in self._machines.values() if machine.killed]:
            ids = {machine.instance_id for machine in dead}
            sessions = {process.pid for machine in dead for process in machine.processes}
            await asyncio.to_thread(kill_until_gone, self._market_id, sessions, ids)
            for machine in dead:
                await asyncio.to_thread(machine.wait)
                self._machines.pop(machine.instance_id, None)
                if machine.process is not None:
                    self._notify_reaper(f"-{machine.process.pid}\n")
                if machine.reboots and self._reaper is not None:
                    self._boot(machine.instance_id, machine.environment)

    def _notify_reaper(self, line: str) -> None:
        if self._reaper is None:  # `close` has ended everything while `_bury` was running
            return
        assert self._reaper.stdin is not None
        self._reaper.stdin.write(line.encode())
        self._reaper.stdin.flush()


def command_of(unit: str) -> list[str]:
    """Return the words of a unit's ExecStart, unquoted as systemd does it; no specifier or variable is expanded."""
    (line,) = (line for line in unit.splitlines() if line.startswith("ExecStart="))
    words = shlex.split(line.removeprefix("ExecStart="))
    return [word.replace("%%", "%").replace("$$", "$") for word in words]
