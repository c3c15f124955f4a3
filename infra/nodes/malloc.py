"""Memory that a process frees stays with the process: what a node asks for in one clock it asks for again in the next."""

import ctypes

#: glibc's mallopt(3): what is asked for, by number.
_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8
_NEVER = 2**31 - 1


def retain_freed_memory() -> bool:
    """Have large arrays made of memory that was freed before, and return whether that can be had (glibc can).

    By default an array of more than 32 MB is mapped anew each time, and the system zeroes every page of it when it is first
    touched: a copy into such an array takes three times as long as one into memory that the process has had. The
    price is that a process keeps the most that it ever held.

    Call it before there are threads: all of them then share one arena, so that what a kernel's thread frees the event loop
    can use again.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library
        return False
    wanted = ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, _NEVER), (_ARENA_MAX, 1))
    done = [mallopt(option, value) for option, value in wanted]  # each, whatever becomes of the others
    return all(done)
