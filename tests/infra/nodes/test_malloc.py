"""A process reuses the memory that it freed, without the system."""

import subprocess
import sys

import pytest

#: Prints the number of page faults of a copy of 64 MB, after one such copy was made and freed.
_PROGRAM = """
import resource
import numpy as np
from proteus_spot.infra.nodes.malloc import retain_freed_memory
if {keep} and not retain_freed_memory():
    raise SystemExit(3)
array = np.ones(1 << 26, np.uint8)
array.copy()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
array.copy()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(*, keep: bool) -> int:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM.format(keep=keep)], capture_output=True, text=True, check=False, timeout=60
    )
    if done.returncode == 3:
        pytest.skip("another C library than glibc")
    assert not done.returncode, done.stderr
    return int(done.stdout)


def test_a_large_array_is_made_of_memory_that_was_freed() -> None:
    assert faults(keep=True) < 5 <= faults(keep=False)
