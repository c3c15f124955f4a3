"""A free look at a trial's file before anything is bought: it is imported here, in a process of its own.

`python -m proteus_spot.tasks.sweeps.import_check FOLDER MODULE FUNCTION ANSWER` is that process; `import_failure`
starts it.
"""

import importlib
import inspect
import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from proteus_spot.infra.applications.code_files import CodeFile, split_app
from proteus_spot.infra.applications.code_shipping import write_code
from proteus_spot.infra.trials.process import failure

#: Real seconds that an import may take here; what takes longer is left to the first trial.
IMPORT_S = 60.0
#: Errors that code has on any machine, whatever is installed there.
_CERTAIN = ("NameError", "UnboundLocalError", "SyntaxError", "IndentationError", "TabError")


@dataclass(frozen=True, slots=True)
class ImportFailure:
    """Why a trial's file cannot be used here.

    Attributes
    ----------
    why : one line.
    is_certain : whether it would fail on every machine alike.
    is_missing_module : whether a module is not installed here.
    """

    why: str
    is_certain: bool
    is_missing_module: bool


def import_failure(trial: str, code: CodeFile, limit_s: float = IMPORT_S) -> ImportFailure | None:
    """Import the file of ``module:function`` in a process, and return why that failed; None: it works, or takes long.

    Parameters
    ----------
    limit_s : real seconds after which the process is ended, and nothing is known.
    """
    module, name = split_app(trial)
    with tempfile.TemporaryDirectory(prefix="proteus-import-") as scratch:
        folder, answer = Path(scratch) / "code", Path(scratch) / "answer.json"
        write_code(code, folder, code.name)
        command = [
            sys.executable,
            "-m",
            "proteus_spot.tasks.sweeps.import_check",
            str(folder / code.sha256),
            module,
            name,
        ]
        process = subprocess.Popen(
            [*command, str(answer)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=scratch,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
            process_group=0,
        )
        try:
            with suppress(subprocess.TimeoutExpired):
                process.wait(limit_s)
        finally:
            code_of = process.poll()
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if answer.exists():
            found = json.loads(answer.read_text())
            return None if found is None else ImportFailure(**found)
    if code_of is None or code_of < 0:  # too slow, or too large, for this machine
        return None
    return ImportFailure(f"its import ended the process with exit code {code_of}", False, False)


def _look(folder: str, module: str, name: str) -> ImportFailure | None:
    sys.path.insert(0, folder)
    try:
        function = getattr(importlib.import_module(module), name, None)
    except BaseException as error:  # noqa: BLE001 - whatever it is, the import has failed
        is_missing = isinstance(error, ModuleNotFoundError)
        return ImportFailure(failure(error, folder), type(error).__name__ in _CERTAIN, is_missing)
    if not callable(function):
        return ImportFailure(f"module {module} has no function {name}", True, False)
    try:
        inspect.signature(function).bind(object())
    except TypeError as error:
        return ImportFailure(f"{name} cannot be called with a trial alone: {error}", True, False)
    except ValueError:  # a function without a signature, of a compiled module
        return None
    return None


def main(arguments: list[str]) -> int:
    """Look at the file, and write the answer; return the exit code."""
    folder, module, name, target = arguments
    found = _look(folder, module, name)
    fields = None if found is None else {each: getattr(found, each) for each in ImportFailure.__slots__}
    written = Path(f"{target}.new")
    written.write_text(json.dumps(fields))
    written.rename(target)
    os._exit(0)  # threads that the import has started would keep the process from ending


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
