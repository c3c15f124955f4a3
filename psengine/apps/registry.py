"""Built-in applications by name, and construction of applications."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proteus_spot.psengine.apps.base import (
    SIZES,
    App,
    Application,
    MakesDriver,
    Model,
    StandsFor,
)
from proteus_spot.psengine.apps.returned import checked_driver, tables_of, wrong
from proteus_spot.psengine.config import JobConfig, JobError
from proteus_spot.psengine.drivers.interface import Driver
from proteus_spot.psengine.drivers.ssp import Ssp
from proteus_spot.psengine.tables.allowed_values import WrongValue, as_initial
from proteus_spot.psengine.tables.sharding import Arrays, Sharding

BUILT_IN = MappingProxyType(
    {
        "mlr": "proteus_spot.psengine.apps.mlr:MultinomialLogisticRegression",
        "kmeans": "proteus_spot.psengine.apps.kmeans:KMeans",
        "lda": "proteus_spot.psengine.apps.lda:LatentDirichletAllocation",
        "mf": "proteus_spot.psengine.apps.mf:MatrixFactorization",
        "bgd": "proteus_spot.psengine.apps.bgd:ElasticDescent",
    }
)

#: Applications that also train model-parallel, with `parallel=model`: a driver rotates blocks of the model.
MODEL_PARALLEL = MappingProxyType(
    {
        "lda": "proteus_spot.psengine.apps.lda:ModelParallelLda",
        "mf": "proteus_spot.psengine.apps.mf:ModelParallelFactorization",
    }
)
PARALLEL = ("data", "model")

#: {application: figures that its `evaluate` returns}; of `bgd` those that its target has.
METRICS = MappingProxyType(
    {
        "mlr": ("accuracy", "loss"),
        "kmeans": ("mean_squared_distance",),
        "lda": ("perplexity", "log_likelihood"),
        "mf": ("rmse", "mae"),
        "bgd": ("accuracy", "auprc", "loss", "rmse"),
    }
)

#: {application: kind of its training data} (see `infra.datasets.kinds`); all others learn from labelled examples.
WANTS = MappingProxyType({"mf": "ratings", "lda": "documents"})

#: Applications that learn from examples without labels. Any other may want them.
WITHOUT_LABELS = frozenset({"kmeans"})


def kind_for(app: str | None) -> str:
    """Return the kind of data that an application learns from; labelled examples unless it is registered otherwise."""
    return WANTS.get(app or "", "examples")


def resolve(name: str, params: Mapping[str, Any]) -> App | Application:
    """Construct the application of a built-in name or of `module:Class`.

    Of the sizes (`SIZES`), its constructor gets those that it has parameters for. The parameter `parallel` of those in
    `MODEL_PARALLEL` selects the class.

    Raises
    ------
    JobError
        If there is no such application, or it does not accept these parameters.
    """
    target = BUILT_IN.get(name, name)
    if name in MODEL_PARALLEL:
        target, params = _by_parallel(name, params)
    elif name in BUILT_IN and "parallel" in params:
        raise JobError(f"app {name!r} trains in one way alone; leave parallel out: {', '.join(MODEL_PARALLEL)} have it")
    module, _, attribute = target.partition(":")
    if not attribute:
        raise JobError(f"app {name!r} is not known: use one of {', '.join(BUILT_IN)}, or module:Class")
    try:
        constructor = getattr(importlib.import_module(module), attribute)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        # A user's module may raise any error, and end the process.
        raise JobError(f"app {name!r} cannot be imported on this node: {_text(error)}") from error
    try:
        made = constructor(**_select_sizes(constructor, params))
        app: App | Application = made.engine_application() if isinstance(made, StandsFor) else made
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise JobError(f"app {name!r} does not take these app_params: {_text(error)}") from error
    return app


def _by_parallel(name: str, params: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the class that `parallel` selects, and the parameters without it."""
    rest = {key: value for key, value in params.items() if key != "parallel"}
    parallel = params.get("parallel", "data")
    if parallel not in PARALLEL:
        raise JobError(f"app {name!r}: parallel is {parallel!r}; want one of {', '.join(PARALLEL)}")
    if name == "lda" and "blocks" in rest:
        raise JobError(
            "app 'lda' has no parameter blocks any more; want parallel=model, with a block for each partition"
        )
    return (MODEL_PARALLEL if parallel == "model" else BUILT_IN)[name], rest


def driver_of(config: JobConfig) -> Driver:
    """Return a new driver for a job: its application's own, else SSP. Raises `JobError` as `resolve` does."""
    app = resolve(config.app, config.app_params)
    if not isinstance(app, MakesDriver):
        return Ssp(config.staleness, _passes_after(app))
    takes_clocks = "clocks" in inspect.signature(app.driver).parameters
    driver: Driver = checked_driver(app.driver, app.driver(**({"clocks": config.clocks} if takes_clocks else {})))
    return driver


def _passes_after(app: App | Application) -> Callable[[int], float | None] | None:
    counted: Callable[[int], float | None] | None = getattr(app, "passes_after", None)
    clocks = getattr(app, "clocks_per_pass", None)
    return counted if counted is not None or clocks is None else partial(_of_even_passes, clocks)


def _of_even_passes(clocks_per_pass: int, clock: int) -> float:
    return clock / clocks_per_pass


def counts_passes(app: App | Application) -> bool:
    """Return whether an application says what a pass over the data is, itself or by its driver."""
    if isinstance(app, MakesDriver) and hasattr(app.driver(), "passes"):
        return True
    return getattr(app, "clocks_per_pass", None) is not None


def scales_in(config: JobConfig) -> bool:
    """Return whether a job scales in: by its own setting, else by its application. Raises `JobError`."""
    if config.scale_in is not None:
        return config.scale_in
    app = resolve(config.app, config.app_params)
    return bool(getattr(app, "memory_falls", False))


def _select_sizes(constructor: Any, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return `params` without the sizes that `constructor` has no parameters for."""
    parameters = inspect.signature(constructor).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return dict(params)
    return {name: value for name, value in params.items() if name in parameters or name not in SIZES}


def _text(error: BaseException) -> str:
    plain = isinstance(error, ImportError | AttributeError | TypeError | ValueError)
    return str(error) if plain else f"{type(error).__name__}: {error}"


def initial_arrays(
    app: Model, seed: int, shard: int, rows: Mapping[str, tuple[int, int]], finite: bool = True
) -> Arrays:
    """Return the values of a shard at clock 0, of the tables in `rows`; the same on every node.

    There is no -0 (see `row_sets`).

    Raises
    ------
    WrongValue
        If `initial` does not return exactly these rows, or returns values that its table does not take.
    """
    found: Arrays = {}
    for index, table in enumerate(tables_of(app)):
        if table.name in rows:
            values = app.initial(table, rows[table.name], np.random.default_rng([seed, index, shard]))
            try:
                found[table.name] = _without_minus_zero(as_initial(table, values, rows[table.name], finite))
            except WrongValue as error:
                raise wrong(app.initial, str(error)) from None
    return found


def initial_shards(
    app: Model, sharding: Sharding, seed: int, shards: Sequence[int], finite: bool = True
) -> dict[int, Arrays]:
    """Return the initial values of shards, by shard and table. It runs the user's code: call it on a thread."""
    rows = {shard: {table.name: sharding.rows(shard, table) for table in sharding.tables} for shard in shards}
    return {shard: initial_arrays(app, seed, shard, rows[shard], finite) for shard in shards}


def _without_minus_zero(array: NDArray[Any]) -> NDArray[np.generic]:
    return array + array.dtype.type(0) if array.dtype.kind == "f" else array
