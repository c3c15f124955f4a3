"""What a user says of an application on the command line: its name, the file that holds it, its parameters."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, TypeVar

import click

from tasks.failures import InputError

F = TypeVar("F", bound=Callable[..., Any])

#: Size of the model: random Fourier features that are computed anew every clock, so that a clock really computes.
FEATURES = 8192

_PARAM = click.option(
    "--param",
    "params",
    multiple=True,
    metavar="NAME=VALUE",
    help="Parameter of the application (repeat); VALUE is JSON where it can be read so, else text.",
)
_CODE = click.option(
    "--code",
    metavar="FILE",
    help="Path or URL of the .py file or wheel that holds module:Class. Default: module.py in this directory.",
)
_APP = click.option(
    "--app", default="mlr", show_default=True, metavar="NAME|module:Class", help="Application: built-in, or your own."
)


@dataclass(frozen=True)
class Application:
    """An application as a job names it; `code` is empty where it is on every machine anyway."""

    app: str
    code: str
    params: Mapping[str, Any]


def app_options(command: F) -> F:
    """Add `--app`, `--code` and `--param`; the command gets `app`, `code` (or None) and `params` (texts)."""
    return _APP(code_options(command))


def code_options(command: F) -> F:
    """Add `--code` and `--param` to a command whose application is an argument."""
    return _CODE(_PARAM(command))


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
        from tasks.training.application_checks import absolute_code

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
    here = Path.cwd()
    return (
        PathFinder.find_spec(top, [place for place in sys.path if place and Path(place).absolute() != here]) is not None
    )
