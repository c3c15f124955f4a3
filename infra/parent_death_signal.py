"""A launcher that makes a command end with its parent: it sets the parent-death signal and execs the command.

Run as a script (``python parent_death_signal.py PARENT COMMAND…``); it imports no module of this project, so it costs
some 20 ms. Setting the signal in the child between fork and exec would be unsafe in a process that has threads.

*Source*: prctl(2), PR_SET_PDEATHSIG.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def set_parent_death_signal(parent: int, number: int) -> None:
    """Request signal `number` for the end of `parent`, this process's parent (Linux); exit if it has ended already."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
        if os.getppid() != parent:  # it ended before the signal was set
            sys.exit(1)


def main() -> None:
    """Set signals as a login shell has them, set the parent-death signal, and exec the command."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    set_parent_death_signal(parent, signal.SIGTERM)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
