"""The machines of the simulated EC2: processes that run user-data, each in a session of its own, and end as a whole.

*Differs* from EC2: a machine is as old as its script. When the script has ended by itself the machine is shut down, and
what the script left in the background goes with it. User-data that is no script (no ``#!``) runs nothing.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from infra.simulated_ec2.process_reaper import INSTANCE_MARK, MARKET_MARK, kill_until_gone

#: Real seconds between the SIGTERM of a termination and its SIGKILL.
GRACE_S = 2.0


class _Machine:
    """One running script and what it started."""

    def __init__(self, instance_id: str, process: subprocess.Popen[bytes]) -> None:
        self.instance_id = instance_id
        self.process = process
        self.ending = False
        self.killed = False

    @property
    def script_ended(self) -> bool:
        """Whether the script has ended. It is not reaped: its id stays taken until the burial."""
        return os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):  # the whole group has ended
            os.killpg(self.process.pid, number)


class Machines:
    """All machines of one endpoint. Everything but `close` is called on the event loop.

    Parameters
    ----------
    work_dir : each instance gets a directory in it, with its user-data, console.log and home.
    market_id : unlike that of any other endpoint; it marks our processes.
    passed : variables that every machine's environment carries beside the few of a fresh login.
    """

    def __init__(self, work_dir: Path, market_id: str, passed: Mapping[str, str]) -> None:
        self._work_dir = work_dir
        self._market_id = market_id
        self._passed = dict(passed)
        self._machines: dict[str, _Machine] = {}
        self._burials: asyncio.Task[None] | None = None
        self._warden: subprocess.Popen[bytes] | None = None

    def open(self) -> None:
        """Start the watch that ends our machines if we are killed."""
        self._work_dir.mkdir(parents=True, exist_ok=True)
        self._warden = subprocess.Popen(
            [sys.executable, "-I", str(Path(__file__).with_name("process_reaper.py")), self._market_id],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def start(self, instance_id: str, user_data: str, metadata_url: str) -> None:
        """Boot a machine: run its user-data, if that is a script."""
        home = self._work_dir / instance_id
        (home / "tmp").mkdir(parents=True, exist_ok=True)  # it boots again when its market was ended in between
        script = home / "user-data"
        script.write_text(user_data)
        script.chmod(0o700)
        with (home / "console.log").open("ab") as console:
            if not user_data.startswith("#!"):
                console.write(b"user-data is no script (it does not begin with #!): nothing was run\n")
                return
            try:
                process = subprocess.Popen(
                    [str(script)],
                    cwd=home,
                    env=self._environment(instance_id, home, metadata_url),
                    stdin=subprocess.DEVNULL,
                    stdout=console,
                    stderr=console,
                    start_new_session=True,
                )
            except OSError as error:
                console.write(f"user-data could not be run: {error}\n".encode())
                return
        self._machines[instance_id] = _Machine(instance_id, process)
        self._tell_warden(f"+{process.pid}\n")

    def kill(self, instance_id: str) -> None:
        """Take a machine away: SIGKILL to all of it, now."""
        machine = self._machines.get(instance_id)
        if machine is not None:
            machine.signal(signal.SIGKILL)
            machine.ending = machine.killed = True
            if self._burials is None or self._burials.done():
                self._burials = asyncio.create_task(self._bury())

    def terminate(self, instance_id: str) -> None:
        """Shut a machine down: SIGTERM, and after a grace SIGKILL. Does not wait."""
        machine = self._machines.get(instance_id)
        if machine is not None and not machine.ending:
            machine.ending = True
            machine.signal(signal.SIGTERM)
            asyncio.get_running_loop().call_later(GRACE_S, self.kill, instance_id)

    def collect(self) -> list[str]:
        """Return the machines whose script has ended by itself since the last call, and end what it left."""
        by_itself = []
        for machine in list(self._machines.values()):
            if not machine.killed and machine.script_ended:
                if not machine.ending:
                    by_itself.append(machine.instance_id)
                self.kill(machine.instance_id)
        return by_itself

    def close(self) -> None:
        """Kill everything and wait until it is gone."""
        for machine in self._machines.values():
            machine.signal(signal.SIGKILL)
        kill_until_gone(self._market_id, {machine.process.pid for machine in self._machines.values()})
        for machine in self._machines.values():
            machine.process.wait()
        self._machines.clear()
        if self._warden is not None:
            assert self._warden.stdin is not None
            self._warden.stdin.close()
            self._warden.wait()
            self._warden = None

    def _environment(self, instance_id: str, home: Path, metadata_url: str) -> dict[str, str]:
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(home),
            "TMPDIR": str(home / "tmp"),
            "LANG": os.environ.get("LANG", "C.UTF-8"),
            **self._passed,
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": f"{metadata_url}/{instance_id}",
            MARKET_MARK: self._market_id,
            INSTANCE_MARK: instance_id,
        }

    async def _bury(self) -> None:
        """End what left the sessions of the killed, reap them and forget them; many at once, for one look is dear."""
        while dead := [machine for machine in self._machines.values() if machine.killed]:
            ids = {machine.instance_id for machine in dead}
            await asyncio.to_thread(kill_until_gone, self._market_id, {machine.process.pid for machine in dead}, ids)
            for machine in dead:
                await asyncio.to_thread(machine.process.wait)
                self._machines.pop(machine.instance_id, None)
                self._tell_warden(f"-{machine.process.pid}\n")

    def _tell_warden(self, line: str) -> None:
        if self._warden is None:  # closed, and everything ended, while a burial was under way
            return
        assert self._warden.stdin is not None
        self._warden.stdin.write(line.encode())
        self._warden.stdin.flush()
