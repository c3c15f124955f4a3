"""Let a process hold as many connections as a job has nodes: by default a process may open 1,024 files."""

import logging
import resource

logger = logging.getLogger(__name__)

#: Number of files that are enough: two connections to each of 16,384 nodes.
_ENOUGH = 1 << 15


def raise_file_limit() -> int:
    """Raise the number of files that this process may open, as far as the system allows; return it.

    Half of it are the connections that a process keeps. Beyond these each call opens one and closes another.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return _ENOUGH if soft == resource.RLIM_INFINITY else soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError) as error:  # the system has a lower maximum than it says
        logger.warning("this process may open %d files: %s", soft, error)
        return soft
    return wanted
