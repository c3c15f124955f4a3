"""Run the files of the tests that failed once more, alone: `python tools/rerun.py` after a run of pytest.

Tests with real processes wait with deadlines, and a machine that does other work can miss one. What fails again fails.
What passes alone is named as unstable: a fault of the test, to be fixed.
"""

import json
import subprocess
import sys
from pathlib import Path

LAST_FAILED = Path(".pytest_cache/v/cache/lastfailed")
#: More files than this are no accident.
MOST_FILES = 3


def failed() -> list[str]:
    """Return the tests that failed in the last run, by name."""
    return sorted(json.loads(LAST_FAILED.read_text())) if LAST_FAILED.exists() else []


def main() -> int:
    """Run the files again; return the exit code of the whole run."""
    tests = failed()
    files = sorted({test.partition("::")[0] for test in tests})
    if not 0 < len(files) <= MOST_FILES:
        return 1
    print(f"again, alone: {' '.join(files)}", flush=True)
    code = subprocess.run([sys.executable, "-m", "pytest", "-q", *files], check=False).returncode
    if code == 0:
        print("unstable, failed next to other tests and passed alone:", *tests, sep="\n  ")
    return code


if __name__ == "__main__":
    sys.exit(main())
