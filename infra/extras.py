"""The extras of the installation: the modules that each adds, and the line that says how to add one."""

from collections.abc import Mapping
from importlib.util import find_spec
from types import MappingProxyType

from proteus_spot.infra.errors import InputError

#: Extra of pyproject.toml -> the modules that are imported of it.
EXTRAS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "local": ("moto", "aiohttp", "bokeh"),
        "sweeps": ("optuna", "scipy", "sklearn", "skops", "lightgbm"),
        "neural": ("jax", "optax"),
        "postgres": ("psycopg",),
        "xgboost": ("xgboost",),
        "torch": ("torch", "safetensors"),
        "mlflow": ("mlflow",),
    }
)


def missing_of(extra: str) -> str | None:
    """Return the first module of an extra that is not installed; None if all are. Nothing is imported."""
    return next((module for module in EXTRAS[extra] if not _is_there(module)), None)


def how_to_install(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"pip install 'proteus-spot[{extra}]'"


def need_extra(extra: str, what: str) -> None:
    """Refuse `what`, the verb or option of a user, where an extra that it needs is not installed.

    Raises
    ------
    InputError
        One line with the module that is missing and the command that installs it.
    """
    missing = missing_of(extra)
    if missing is not None:
        raise InputError(f"{what}: needs {missing}, which is not installed: {how_to_install(extra)}")


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:
        return False
