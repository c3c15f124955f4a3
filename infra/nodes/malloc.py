"""Make the process reuse freed memory: a node allocates the same amounts again in every clock."""

import ctypes

#: Parameters of glibc's mallopt(3).
_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8
_NEVER = 2**31 - 1


def retain_freed_memory() -> bool:
    """Make large arrays reuse freed memory; return whether the C library supports that (glibc does).

    By default an array of more than 32 MB is mapped each time, and the system zeroes each of its pages at first
    access: a copy into such an array takes three times as long as one into memory that the process has used before. In
    exchange the process keeps the most memory that it ever held.

    Call it before threads are started: all of them then share one arena, so that the event loop can reuse what a
    kernel's thread freed.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library
        return False
    options = ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, _NEVER), (_ARENA_MAX, 1))
    results = [mallopt(option, value) for option, value in options]  # set each, even if another one fails
    return all(results)
