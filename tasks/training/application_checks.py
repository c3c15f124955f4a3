"""What can be said of an application by what is on this machine alone, before anything is started."""

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from infra.applications.code_files import read_code, split_app
from infra.errors import InputError
from psengine.apps.base import BUILT_IN, SIZES, App, ChecksSizes, resolve
from psengine.config import JobError
from tasks.job_spec import Training

#: A model is in memory at least so many times: where it is served, where it is read, and as the change to it.
_COPIES = 3


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
    for told in SIZES:
        if told in training.app_params:
            raise InputError(f"{name} {told}: the data say it; leave it out")
    try:
        resolve(training.app, {**dict.fromkeys(SIZES, 2), **training.app_params})
    except JobError as error:
        raise InputError(f"{name}: {error}") from None


def check_sizes(name: str, training: Training, sizes: Mapping[str, float]) -> None:
    """Refuse parameters that do not fit the data; `InputError` names them `name`, and the mend.

    A user's code is not run here, as in `check_parameters`.
    """
    if training.app in BUILT_IN:
        _made_for(name, training, sizes)


def check_sizes_here(training: Training, sizes: Mapping[str, float]) -> None:
    """Refuse what `check_sizes` does, and a model that this machine cannot hold, where it is to be trained here.

    Raises
    ------
    InputError
        One line that names the parameters or the tables, and the mend.
    """
    if training.app not in BUILT_IN:
        return  # as in `check_sizes`
    made = _made_for("--param", training, sizes)
    needed = sum(table.n_rows * table.n_cols * np.dtype(table.dtype).itemsize for table in made.tables())
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if _COPIES * needed > there:
        shapes = ", ".join(f"{table.name} {table.n_rows} x {table.n_cols}" for table in made.tables())
        raise InputError(
            f"data {training.data}: the model of {training.app} ({shapes}) takes {needed / 2**30:,.0f} GiB, {_COPIES} times, and "
            f"this machine has {there / 2**30:,.0f}; mend the largest index in the data, or choose smaller parameters"
        )


def _made_for(name: str, training: Training, sizes: Mapping[str, float]) -> App:
    """Return the built-in application as it is for data of these sizes."""
    try:
        made = resolve(training.app, {**sizes, **training.app_params})
        if isinstance(made, ChecksSizes):
            made.check_sizes()
    except (JobError, ValueError) as error:
        raise InputError(f"{name}: {error}") from None
    return made
