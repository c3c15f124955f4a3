"""Checks of an application with what is on this machine alone, before anything is started."""

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

from proteus_spot.infra.applications.code_files import (
    check_code_name,
    check_no_library,
    read_code,
    split_app,
)
from proteus_spot.infra.datasets.kinds import check_name
from proteus_spot.infra.errors import InputError
from proteus_spot.psengine.apps.base import SIZES, App, Application, ChecksSizes, Model
from proteus_spot.psengine.apps.registry import BUILT_IN, METRICS, counts_passes, resolve
from proteus_spot.psengine.config import JobError, Until
from proteus_spot.studies.job_spec import Training

#: Number of random Fourier features; they are computed again every clock, so that a clock takes real work.
FEATURES = 8192


#: Minimum number of copies of a model in memory: served, read, and as updates.
_COPIES = 3


def absolute_code(code: str) -> str:
    """Return a path as an absolute one, for other processes of this machine; a URL or an empty text as it is."""
    return str(Path(code).absolute()) if code and "://" not in code else code


def check_application(training: Training, *, code: bool = True) -> None:
    """Refuse an unknown application, parameters that it does not take, and code that cannot be shipped.

    Parameters
    ----------
    code : whether its file is checked here; shipping checks it again, and a job that has begun does not need it.

    Raises
    ------
    InputError
        One line that names the application, the option or the file, and the fix.
    """
    check_asked(training)
    if code and training.code:
        read_code(training.app, training.code)


def check_asked(training: Training, place: str = "", params: str = "--param") -> None:
    """Refuse an unknown application, parameters that it does not take, and data of an unknown form.

    What `Training` itself refuses (numbers, a missing end) is not checked again. Files are not opened: they may lie
    where only the workers reach them.

    Parameters
    ----------
    place : prefix of the field in an error, as in ``job.yaml: training.``.
    params : name of the parameters there.

    Raises
    ------
    InputError
        One line that names the field and the fix.
    """
    try:
        split_app(training.app)
        if training.code:
            check_code_name(training.app, training.code)
        else:
            check_no_library(training.app)
        check_name(training.data, training.app)
    except InputError as error:
        raise InputError(f"{place}{error}") from None
    check_parameters(f"{place}{params}", training)
    if training.app in BUILT_IN:
        _check_ways(training, place)
    for name, value in training.app_params.items():
        if not _is_json(value):
            raise InputError(
                f"{place}{params} {name}: is {str(value)[:60]}; write finite numbers, texts, lists or mappings"
            )


def _check_ways(training: Training, place: str) -> None:
    """Refuse an end, or a limit of partitions, that the built-in application of a training does not have."""
    metric = Until.parse(training.until).metric
    if metric and metric not in METRICS[training.app]:
        figures = ", ".join(METRICS[training.app])
        raise InputError(f"{place or '--'}until: {training.app} has no figure {metric!r}; want one of {figures}")
    if training.max_partitions_per_node is not None and training.app != "bgd":
        name = f"{place}max_partitions_per_node" if place else "--max-partitions-per-node"
        raise InputError(f"{name}: {training.app} needs all of its partitions; leave it out, or train bgd")
    if training.passes is not None and not counts_passes(_of_any_size(training)):
        raise InputError(f"{place or '--'}passes: {training.app} does not say what a pass is; give clocks instead")


def check_parameters(name: str, training: Training) -> None:
    """Refuse parameters that a built-in application does not take; `InputError` names them `name`.

    A user's code is never run here: the controller checks its parameters.
    """
    if training.app not in BUILT_IN:
        return
    for size in SIZES:
        if size in training.app_params:
            raise InputError(f"{name} {size}: the data say it; leave it out")
    try:
        _of_any_size(training)
    except JobError as error:
        raise InputError(f"{name}: {error}") from None
    if training.staleness and training.app_params.get("parallel") == "model":
        raise InputError(f"{name} parallel: with model nothing is stale, and staleness is {training.staleness}; want 0")


def check_sizes(name: str, training: Training, sizes: Mapping[str, float]) -> None:
    """Refuse parameters that do not fit the data; `InputError` names them `name`, and the fix.

    A user's code is not run here, as in `check_parameters`.
    """
    if training.app in BUILT_IN:
        _made_for(name, training, sizes)


def check_sizes_here(training: Training, sizes: Mapping[str, float]) -> None:
    """Refuse what `check_sizes` refuses, and a model that does not fit into the memory of this machine.

    Raises
    ------
    InputError
        One line that names the parameters or the tables, and the fix.
    """
    if training.app not in BUILT_IN:
        return  # as in `check_sizes`
    made = _made_for("--param", training, sizes)
    needed = sum(table.n_rows * table.n_cols * np.dtype(table.dtype).itemsize for table in made.tables())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if _COPIES * needed > memory:
        shapes = ", ".join(f"{table.name} {table.n_rows} x {table.n_cols}" for table in made.tables())
        raise InputError(
            f"data {training.data}: the model of {training.app} ({shapes}) takes {needed / 2**30:,.0f} GiB, "
            f"{_COPIES} times, and this machine has {memory / 2**30:,.0f}; "
            "fix the largest index in the data, or choose smaller parameters"
        )


def _is_json(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_json(each) for key, each in value.items())
    if isinstance(value, list):
        return all(_is_json(each) for each in value)
    return math.isfinite(value) if isinstance(value, float) else value is None or isinstance(value, str | int)


def _of_any_size(training: Training) -> App | Application:
    return resolve(training.app, {**dict.fromkeys(SIZES, 2), **training.app_params})


def _made_for(name: str, training: Training, sizes: Mapping[str, float]) -> Model:
    """Return the built-in application as it is for data of these sizes."""
    try:
        made = resolve(training.app, {**sizes, **training.app_params})
        if isinstance(made, ChecksSizes):
            made.check_sizes()
    except (JobError, ValueError) as error:
        raise InputError(f"{name}: {error}") from None
    return made


@dataclass(frozen=True)
class NamedApplication:
    """An application as a job names it; `code` is empty if it is installed on every machine."""

    app: str
    code: str
    params: Mapping[str, Any]


def application(option: str, app: str, code: str | None, params: Sequence[str]) -> NamedApplication:
    """Return the application that the options describe.

    Parameters
    ----------
    option : how the application was given (`APP`), for errors.

    Raises
    ------
    InputError
        One line that names the option and the fix. The contents of the file are checked later.
    """
    values: dict[str, Any] = {}
    for text in params:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise InputError(f"--param {text}: want NAME=VALUE, as in --param step=0.5")
        if name in values:
            raise InputError(f"--param {text}: {name} was given before; give it once")
        values[name] = _value(value)
    return NamedApplication(app, _code(option, app, code), values)


def default_params(app: str, data: str, seed: int) -> dict[str, Any]:
    """Return the default parameters of an application: `mlr` on the digits gets features."""
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
    directory = Path.cwd()
    entries = [entry for entry in sys.path if entry and Path(entry).absolute() != directory]
    return PathFinder.find_spec(top, entries) is not None
