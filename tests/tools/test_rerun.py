"""Files with a failed test run once more, alone."""

import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).resolve().parents[2] / "tools" / "rerun.py"
UNSTABLE = """
from pathlib import Path

def test_first():
    pass

def test_unstable():
    before = Path(f"{__name__}.ran")
    seen, _ = before.exists(), before.touch()
    assert seen
"""


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder."""
    command = (sys.executable, *command)
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def again(folder: Path, **files: str) -> subprocess.CompletedProcess[str]:
    """Run tests with pytest, then the tool."""
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    assert run(folder, "-m", "pytest", "-q").returncode == 1
    return run(folder, str(TOOL))


def test_what_passes_alone_is_named_and_passes(tmp_path: Path) -> None:
    done = again(tmp_path, one=UNSTABLE, other="def test_other():\n    pass\n")
    assert done.returncode == 0
    assert "again, alone: test_one.py\n" in done.stdout
    assert "2 passed" in done.stdout, "the whole file: later tests may build on earlier ones"
    assert "unstable" in done.stdout
    assert "test_one.py::test_unstable" in done.stdout


def test_what_fails_again_fails(tmp_path: Path) -> None:
    done = again(tmp_path, one=UNSTABLE, other="def test_other():\n    assert False\n")
    assert done.returncode == 1
    assert "unstable" not in done.stdout


def test_many_failures_are_no_accident(tmp_path: Path) -> None:
    done = again(tmp_path, **{name: UNSTABLE for name in ("one", "two", "three", "four")})
    assert done.returncode == 1
    assert "again" not in done.stdout
