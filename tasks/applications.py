"""What can be said of an application by what is on this machine alone, before anything is started."""

from pathlib import Path

from infra.code_files import read_code, split_app
from infra.errors import InputError
from psengine.apps.base import BUILT_IN, SIZES, resolve
from psengine.model import JobError
from tasks.spec import Training


def absolute_code(code: str) -> str:
    """Return a path as one that every process of this machine understands; a URL, or nothing, as it is."""
    return str(Path(code).absolute()) if code and "://" not in code else code


def check_application(training: Training, *, code: bool = True) -> None:
    """Refuse an application that is not known or does not take its parameters, and code that cannot travel.

    Parameters
    ----------
    code : whether its file is looked at here; who ships it looks by himself, and a job that has begun needs it no more.

    Raises
    ------
    InputError
        One line that names the application, the option or the file, and the mend.
    """
    split_app(training.app)
    check_parameters("--param", training)
    if code and training.code:
        read_code(training.app, training.code)


def check_parameters(name: str, training: Training) -> None:
    """Refuse parameters that a built-in application does not take; `InputError` names them `name`.

    A user's code is never run here: the controller says what it thinks of its parameters.
    """
    if training.app not in BUILT_IN:
        return
    try:
        resolve(training.app, {**dict.fromkeys(SIZES, 2), **training.app_params})
    except JobError as error:
        raise InputError(f"{name}: {error}") from None
