"""A sweep as a user gives it on the command line: its file, its id, its paths, its markets. Imports no Prefect."""

from pathlib import Path

from pydantic import ValidationError

from proteus_spot.infra.datasets.kinds import DEFAULT_SETS
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.market_data.catalogs import read_catalog
from proteus_spot.infra.validation import first_fault
from proteus_spot.studies.market_data.local_market import MarketFile
from proteus_spot.tasks.sweeps.markets import resolve_markets
from proteus_spot.tasks.sweeps.sweep_checks import check_files, check_trial
from proteus_spot.tasks.sweeps.sweep_spec import SweepSpec, read_sweep


def read_asked(path: Path, sweep_id: str | None) -> SweepSpec:
    """Return the sweep of a file with absolute paths, and with an id if one is given.

    Raises
    ------
    InputError
        One line that names the file and the field, or the option.
    """
    spec = absolute_inputs(read_sweep(path))
    if sweep_id is None:
        return spec
    try:
        return SweepSpec.model_validate({**spec.model_dump(), "sweep_id": sweep_id})
    except ValidationError as error:
        raise InputError(first_fault(error, lambda name: f"--{name.replace('_', '-')}")) from None


def check_asked(spec: SweepSpec, path: Path) -> None:
    """Refuse a sweep whose trial or files cannot be used; `InputError` names the file and the field."""
    check_trial(spec, f"{path}: ")
    check_files(spec, f"{path}: ")


def absolute_inputs(spec: SweepSpec) -> SweepSpec:
    """Return the sweep with absolute paths, for flows and workers with working directories of their own."""
    is_set = spec.is_built_in and spec.data in DEFAULT_SETS.values()
    names = ("code", "requirements") if is_set else ("code", "requirements", "data")
    return spec.model_copy(update={name: _absolute(getattr(spec, name)) for name in names})


def in_market(spec: SweepSpec, market: MarketFile, catalog: Path | None) -> SweepSpec:
    """Return the sweep with its markets by name, those of a run's own market that it wants."""
    found = resolve_markets(spec.markets, market.markets, read_catalog(catalog), market.start_s)
    return spec.in_markets(found)


def _absolute(source: str) -> str:
    return str(Path(source).absolute()) if source and "://" not in source else source
