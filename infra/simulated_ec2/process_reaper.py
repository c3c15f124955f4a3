"""The reaper of simulated machines: find and kill their processes, also when their endpoint was killed.

A machine's processes are recognised by their session, or, if they left it, by marks in their environment. Run as a
script (``python process_reaper.py MARKET_ID``) it reads sessions from standard input (``+SID``, ``-SID``, one per line)
until that closes, which also happens when the endpoint is killed; then it kills the remaining processes. It imports no
module of this project.
"""

import os
import signal
import sys
import threading
from collections.abc import Collection

import psutil

#: Environment variables of every process of a machine: the id of its endpoint and its instance.
MARKET_MARK = "PROTEUS_MARKET"
INSTANCE_MARK = "PROTEUS_INSTANCE"

#: Maximum duration of `kill_until_gone`, and the time between two scans, in real seconds.
_MAX_KILL_S = 5.0
_SCAN_PERIOD_S = 0.01


def find_processes(
    market_id: str, sessions: Collection[int], instances: Collection[str] | None = None
) -> list[psutil.Process]:
    """Return the living processes of machines, without the calling process.

    Parameters
    ----------
    market_id : id of the endpoint that owns the machines.
    sessions : every process in one of these sessions is included.
    instances : every process marked with one of these instances is included too; None: with any instance of the market.
    """
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                continue
            if os.getsid(process.pid) in sessions:
                found.append(process)
                continue
            environment = process.environ()
            if environment.get(MARKET_MARK) == market_id and (
                instances is None or environment.get(INSTANCE_MARK) in instances
            ):
                found.append(process)
        except (psutil.Error, OSError):  # the process ended during the scan, or belongs to another user
            continue
    return found


def kill_until_gone(market_id: str, sessions: Collection[int], instances: Collection[str] | None = None) -> bool:
    """Kill the processes of machines until none is left, for 5 s at most; return whether none is left."""
    pause = threading.Event()
    for _ in range(int(_MAX_KILL_S / _SCAN_PERIOD_S)):
        found = find_processes(market_id, sessions, instances)
        if not found:
            return True
        for process in found:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        pause.wait(_SCAN_PERIOD_S)
    return False


def main() -> None:
    """Wait until standard input closes, then kill the remaining processes."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sessions: set[int] = set()
    for line in sys.stdin:
        if line.startswith("+"):
            sessions.add(int(line[1:]))
        else:
            sessions.discard(int(line[1:]))
    sys.exit(0 if kill_until_gone(sys.argv[1], sessions) else 1)


if __name__ == "__main__":
    main()
