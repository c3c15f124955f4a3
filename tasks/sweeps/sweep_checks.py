"""Checks of a sweep with what is on this machine alone, before anything is written or bought."""

import logging
from collections.abc import Iterator

from proteus_spot.bidding.tuning.space import ParameterKind, Params
from proteus_spot.infra.applications.code_files import read_trial_code
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.files import is_folder, is_there
from proteus_spot.psengine.apps.base import SIZES
from proteus_spot.psengine.apps.registry import resolve
from proteus_spot.psengine.config import JobError
from proteus_spot.tasks.sweeps.import_check import import_failure
from proteus_spot.tasks.sweeps.samplers import check_sampler
from proteus_spot.tasks.sweeps.sweep_spec import SweepSpec

_log = logging.getLogger(__name__)
#: Settings of an application that are tried: the ends of each parameter, beside the first setting.
_MOST_TRIED = 400


def check_trial(spec: SweepSpec, place: str = "") -> None:
    """Refuse a trial that could not begin: its code, its parameters, or a sampler that proposes nothing.

    Parameters
    ----------
    place : prefix of errors, as in ``sweep.yaml: ``.

    Raises
    ------
    InputError
        One line that names the field and the fix.
    """
    try:
        if spec.is_built_in:
            _check_parameters(spec)
        else:
            read_trial_code(spec.trial, spec.code)
        check_sampler(spec)
    except InputError as error:
        raise InputError(f"{place}{error}") from None


def check_import(spec: SweepSpec, place: str = "", *, is_here: bool) -> None:
    """Refuse a trial whose file cannot be imported, or whose function cannot be called, before anything is bought.

    It is imported in a process of this machine. What only other machines may have does not count against it: a module
    that `requirements` installs; and, where trials run elsewhere, everything but an error that the code has anywhere.
    The first trial finds the rest.

    Parameters
    ----------
    is_here : whether trials are processes of this machine, too.

    Raises
    ------
    InputError
        One line with the error, and the line of the user's file.
    """
    if spec.is_built_in:
        return
    found = import_failure(spec.trial, read_trial_code(spec.trial, spec.code))
    if found is None:
        return
    is_sure = found.is_certain or (is_here and not (spec.requirements and found.is_missing_module))
    fix = "; install it, or name it in requirements" if found.is_missing_module else ""
    if is_sure:
        raise InputError(f"{place}code {spec.code}: cannot be imported: {found.why}{fix}")
    _log.warning("%scode %s: cannot be imported here, and may be elsewhere: %s", place, spec.code, found.why)


def check_files(spec: SweepSpec, place: str = "") -> None:
    """Refuse files of a sweep that are not there; `InputError` names the field."""
    for name in ("requirements", "data"):
        source = getattr(spec, name)
        if not source or spec.is_built_in or is_there(source):
            continue
        if is_folder(source):
            raise InputError(f"{place}{name}: {source} is a directory; give a file, packed as .zip or .tar, say")
        raise InputError(f"{place}{name}: {source} is not there; check the path")


def _check_parameters(spec: SweepSpec) -> None:
    """Refuse parameters that the application does not take, and ends of a range that it refuses."""
    for size in SIZES:
        if size in spec.space:
            raise InputError(f"space.{size}: the data say it; leave it out")
    for name, params in _corners(spec):
        try:
            resolve(spec.trial, {**dict.fromkeys(SIZES, 2), **params})
        except JobError as error:
            raise InputError(f"space.{name}: {error}") from None


def _corners(spec: SweepSpec) -> Iterator[tuple[str, Params]]:
    """Yield settings in which one parameter, which is named, has a value of its ends or choices."""
    values = {
        name: parameter.choices if parameter.kind is ParameterKind.CHOICE else (parameter.low, parameter.high)
        for name, parameter in spec.parameters.items()
    }
    first: Params = {name: choices[0] for name, choices in values.items()}
    tried = 0
    for name, choices in values.items():
        for value in choices:
            if tried == _MOST_TRIED:
                return
            tried += 1
            yield name, {**first, name: value}
