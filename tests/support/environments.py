"""Environments of a part of the lock with Proteus as a wheel: an image of a node, or an installation of a user."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.wheels import source_copy

ROOT = Path(__file__).resolve().parents[2]


def run(*command: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, text=True, check=False)


def _uv(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, ROOT / "tools" / "uv.py", "--no-progress", *arguments, cwd=cwd)


def python_of(lock: Path, here: Path) -> Path:
    """Return the interpreter of a new environment in `here`: what `lock` names, and Proteus as a wheel.

    The test is skipped where neither uv's cache has the packages nor an index can be reached.
    """
    made = here / "venv" / "bin" / "python"
    done = _uv("venv", "--python", sys.executable, here / "venv", cwd=here)
    assert done.returncode == 0, done.stderr
    sync = ("pip", "sync", "--python", made, "--require-hashes", lock)
    done = _uv("--offline", *sync, cwd=here)  # `make .venv` has left all of it in the cache
    if done.returncode:
        done = _uv(*sync, cwd=here)
    if done.returncode and "error sending request" in done.stderr:
        pytest.skip(
            f"no package index can be reached, and uv's cache does not have {lock.name}: "
            f"{' '.join(done.stderr.split())[-300:]}"
        )
    assert done.returncode == 0, done.stderr
    source_copy(here / "source")
    build = ("wheel", "--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--wheel-dir", here)
    done = run(sys.executable, "-m", "pip", *build, here / "source", cwd=here)
    assert done.returncode == 0, done.stderr
    (wheel,) = here.glob("*.whl")
    done = _uv("--offline", "pip", "install", "--python", made, "--no-deps", wheel, cwd=here)
    assert done.returncode == 0, done.stderr
    return made
