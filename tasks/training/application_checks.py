"""What can be said of an application by what is on this machine alone, before anything is started."""

import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import numpy as np

from infra.applications.code_files import check_code_name, read_code, split_app
from infra.datasets.kinds import check_name
from infra.errors import InputError
from psengine.apps.base import SIZES, App, ChecksSizes
from psengine.apps.registry import BUILT_IN, resolve
from psengine.config import JobError
from tasks.job_spec import Training

#: Size of the model: random Fourier features that are computed anew every clock, so that a clock really computes.
FEATURES = 8192


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
    check_asked(training)
    if code and training.code:
        read_code(training.app, training.code)


def check_asked(training: Training, place: str = "", params: str = "--param") -> None:
    """Refuse what no machine could train: an unknown application, parameters that it does not take, data of no known form.

    What `Training` refuses by itself (numbers, an end that is missing) is not looked at again. Files are not opened: they
    may lie where only the workers reach them. Pure.

    Parameters
    ----------
    place : what stands before the field in an error, as in ``job.yaml: training.``.
    params : what the parameters are called there.

    Raises
    ------
    InputError
        One line that names the field and the mend.
    """
    try:
        split_app(training.app)
        if training.code:
            check_code_name(training.app, training.code)
        check_name(training.data, training.app)
    except InputError as error:
        raise InputError(f"{place}{error}") from None
    check_parameters(f"{place}{params}", training)
    for name, value in training.app_params.items():
        if not _is_json(value):
            raise InputError(
                f"{place}{params} {name}: is {str(value)[:60]}; write finite numbers, texts, lists or mappings"
            )


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


def _is_json(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_json(each) for key, each in value.items())
    if isinstance(value, list):
        return all(_is_json(each) for each in value)
    return math.isfinite(value) if isinstance(value, float) else value is None or isinstance(value, str | int)


def _made_for(name: str, training: Training, sizes: Mapping[str, float]) -> App:
    """Return the built-in application as it is for data of these sizes."""
    try:
        made = resolve(training.app, {**sizes, **training.app_params})
        if isinstance(made, ChecksSizes):
            made.check_sizes()
    except (JobError, ValueError) as error:
        raise InputError(f"{name}: {error}") from None
    return made


@dataclass(frozen=True)
class Application:
    """An application as a job names it; `code` is empty where it is on every machine anyway."""

    app: str
    code: str
    params: Mapping[str, Any]


def application(option: str, app: str, code: str | None, params: Sequence[str]) -> Application:
    """Return what the options describe.

    Parameters
    ----------
    option : how the application was given (`--app`), for errors.

    Raises
    ------
    InputError
        One line that names the option and the mend. What is in the file is looked at later.
    """
    values: dict[str, Any] = {}
    for text in params:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise InputError(f"--param {text}: want NAME=VALUE, as in --param step=0.5")
        if name in values:
            raise InputError(f"--param {text}: {name} was given before; give it once")
        values[name] = _value(value)
    return Application(app, _code(option, app, code), values)


def default_params(app: str, data: str, seed: int) -> dict[str, Any]:
    """Return the parameters that an application has unless told otherwise: `mlr` on the digits gets features."""
    if (app, data) != ("mlr", "digits"):
        return {}
    return {"features": FEATURES, "gamma": 0.1, "step": 4.0, "feature_seed": seed}


def _value(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=str)  # NaN and its like are none of JSON's
    except ValueError:
        return text


def _code(option: str, app: str, code: str | None) -> str:
    if code is not None:
        return absolute_code(code)
    module, colon, _ = app.partition(":")
    if not colon:
        return ""
    top, _, inner = module.partition(".")
    if not inner and Path(f"{module}.py").is_file():
        return str(Path(f"{module}.py").absolute())
    if top.isidentifier() and _installed(top):
        return ""
    if inner or Path(top).is_dir():
        raise InputError(f"{option} {app}: a package travels as a wheel: pip wheel --no-deps . and give it by --code")
    raise InputError(f"{option} {app}: there is no {module}.py here, and {top} is not installed; give --code FILE")


def _installed(top: str) -> bool:
    """Return whether a module is installed; one that merely lies in this directory is not on the machines."""
    runtime = Path.cwd()
    return (
        PathFinder.find_spec(top, [place for place in sys.path if place and Path(place).absolute() != runtime])
        is not None
    )
