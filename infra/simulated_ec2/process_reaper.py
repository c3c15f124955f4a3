"""Find and end every process of a simulated machine; and watch over an endpoint, ending its machines if it dies.

A machine's processes are told by their session, or, where they left it, by what their environment carries. Run as a
script (``python process_reaper.py MARKET_ID``) it reads sessions from its standard input (``+SID``, ``-SID``, one a line)
until that closes, which also happens when the endpoint is killed; then it ends what is left. It imports nothing of ours.
"""

import os
import signal
import sys
import threading
from collections.abc import Collection

import psutil

#: What the environment of every process of a machine carries: the endpoint's own id, and the instance.
MARKET_MARK = "PROTEUS_MARKET"
INSTANCE_MARK = "PROTEUS_INSTANCE"

#: How long a sweep goes on while processes still appear, and how often it looks (real seconds).
_SWEEP_S = 5.0
_LOOK_S = 0.01


def find_processes(
    market_id: str, sessions: Collection[int], instances: Collection[str] | None = None
) -> list[psutil.Process]:
    """Return the living processes of machines; never ourselves.

    Parameters
    ----------
    market_id : whose machines.
    sessions : every process in one of these sessions counts.
    instances : so does every process marked as one of these instances'; None: of any instance of the market.
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
        except (psutil.Error, OSError):  # it ended while we looked, or is another user's
            continue
    return found


def kill_until_gone(market_id: str, sessions: Collection[int], instances: Collection[str] | None = None) -> bool:
    """Kill all members until none is left; return whether none is, after some seconds at most."""
    pause = threading.Event()
    for _ in range(int(_SWEEP_S / _LOOK_S)):
        found = find_processes(market_id, sessions, instances)
        if not found:
            return True
        for process in found:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        pause.wait(_LOOK_S)
    return False


def main() -> None:
    """Watch until standard input closes, then sweep."""
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
