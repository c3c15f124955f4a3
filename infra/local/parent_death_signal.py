"""Become another program, on a leash: it is told to end when the process that started it is gone.

Run as a script (``python leash.py PARENT COMMAND…``), without importing anything of ours, so that it costs some 20 ms.
Setting this in the child between fork and exec would be unsafe in a process that has threads.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def set_parent_death_signal(parent: int, number: int) -> None:
    """Ask for this signal when `parent`, which started us, is gone (on Linux); end if it is gone already."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
        if os.getppid() != parent:  # it died before the leash was on
            sys.exit(1)


def main() -> None:
    """Set signals as a login shell has them, put the leash on, and exec the command."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    set_parent_death_signal(parent, signal.SIGTERM)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
