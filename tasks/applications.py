"""What can be said of an application by what is on this machine alone, before anything is started."""

from pathlib import Path

from infra.code_files import read_code, split_app
from tasks.spec import Training


def absolute_code(code: str) -> str:
    """Return a path as one that every process of this machine understands; a URL, or nothing, as it is."""
    return str(Path(code).absolute()) if code and "://" not in code else code


def check_application(training: Training) -> None:
    """Refuse an application that is not known, and code that cannot travel.

    Raises
    ------
    InputError
        One line that names the application or the file, and the mend.
    """
    split_app(training.app)
    if training.code:
        read_code(training.app, training.code)
