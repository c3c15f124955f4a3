"""Eviction models: fitted to files, and checked on later files."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from proteus_spot.bidding.evictions import fit_capacity as capacity
from proteus_spot.bidding.evictions.calibration import Calibration, calibrate, gain
from proteus_spot.bidding.evictions.curve_model import CurveModel
from proteus_spot.bidding.evictions.fit_capacity import UP, fit_availability, joined, of_bands
from proteus_spot.bidding.evictions.fit_conditioned import fit_conditioned
from proteus_spot.bidding.evictions.fit_survival import Report, fit_survival, fit_table, quiet
from proteus_spot.bidding.evictions.predictors.predictor_model import PredictorModel
from proteus_spot.bidding.market.catalog import Catalog
from proteus_spot.bidding.market.model import Market
from proteus_spot.bidding.market.time_window import TimeWindow
from proteus_spot.bidding.market.traces import TraceSet
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.market_data.eviction_model_files import read_model
from proteus_spot.reports.pictures.evictions_pictures import plot_reliability, plot_survival
from proteus_spot.studies.market_data.eviction_sources import Sources, availability, bands_of, prices_of, window_of
from proteus_spot.studies.market_data.predictors import PREDICTORS_EVERY_S

#: Models by name; the last one is not fitted to prices.
MODELS = ("table", "survival", "conditioned", "capacity")


# Fit


def fit_model(
    name: str,
    sources: Sources,
    *,
    from_time: str | None = None,
    to_time: str | None = None,
    open_band: float = capacity.OPEN_BAND,
    report: Report = quiet,
) -> CurveModel:
    """Return the model `name`, fitted to `sources` from `from_time` to `to_time`.

    The times are UTC days, the last one included, or UTC times.

    Raises
    ------
    InputError
        If a file or a time cannot be used, if the sources are not those of the model, or if no market has an hour of
        prices in the window.
    """
    if name not in MODELS:
        raise InputError(f"--model {name}: there is no such model; want {', '.join(MODELS)}")
    if name == "capacity":
        return _fit_capacity(sources, from_time, to_time, open_band, report)
    if sources.prices is None or sources.advisor is not None or sources.availability:
        raise InputError(f"--model {name}: is learnt from --prices FILE alone; an advisor is for --model capacity")
    report(0, 1, f"reading {sources.prices}")
    traces, catalog = prices_of(sources, sources.prices)
    window = window_of(traces, sources.prices, from_time, to_time)
    if name == "conditioned":
        model = fit_conditioned(traces, window, _on_demand(sources.prices, catalog, traces, window), report=report)
    else:
        fit: Callable[..., CurveModel] = {"table": fit_table, "survival": fit_survival}[name]
        model = fit(traces, window, report=report)
    return _not_empty(model, sources.prices, window)


def _fit_capacity(
    sources: Sources, from_time: str | None, to_time: str | None, open_band: float, report: Report
) -> CurveModel:
    if sources.advisor is None and not sources.availability:
        raise InputError("--model capacity: want --advisor FILE or --availability FILE, or both; bids say nothing here")
    found: list[CurveModel] = []
    if sources.availability:
        report(0, 1, "reading availability traces")
        traces = availability(sources)
        window = window_of(traces, sources.availability[0], from_time, to_time)
        found.append(_ever_up(fit_availability(traces, window), sources.availability[0], traces, window))
    if sources.advisor is not None:
        report(0, 1, f"reading {sources.advisor}")
        try:
            found.append(of_bands(bands_of(sources, sources.advisor), open_band=open_band))
        except ValueError as error:
            raise InputError(f"--open-band: {error}") from None
    return found[0] if len(found) == 1 else joined(*found)


def _on_demand(source: str, catalog: Catalog, traces: TraceSet, window: TimeWindow) -> dict[Market, int]:
    """Return the on-demand price of each market at the end of the window, if the catalogue has it."""
    day = datetime.fromtimestamp(window.until_s, UTC).date()
    for market in traces:
        if catalog.region_of(market.zone) is None:  # an unknown type costs one level; the region is required
            raise InputError(f"{source}: {catalog.fault(market)}; give a --catalog that has it, or choose by --market")
    found = {market: catalog.find(market, day) for market in traces}
    return {market: kind.on_demand_micros for market, kind in found.items() if kind is not None}


def _not_empty(model: CurveModel, source: str, window: TimeWindow) -> CurveModel:
    if not model.markets:
        raise InputError(f"{source}: no market has an hour of prices in {window}; widen --from and --to")
    return model


def _ever_up(model: CurveModel, source: str, traces: TraceSet, window: TimeWindow) -> CurveModel:
    if not model.markets:
        raise InputError(f"{source}: {', '.join(map(str, traces))} was never up for an hour in {window}; name others")
    return model


def open_model(source: str) -> CurveModel:
    """Return the survival curves of a file or URL, of predictors their mean; `InputError` if there are none."""
    model = read_model(source)
    return model.mean if isinstance(model, PredictorModel) else model


# Check


@dataclass(frozen=True)
class Check:
    """Models checked on one window: a calibration for each horizon, by file name, and warnings."""

    window: TimeWindow
    found: Mapping[str, Sequence[Calibration]]
    kinds: Mapping[str, str]
    warnings: tuple[str, ...] = ()

    def gains(self, name: str) -> list[tuple[float, float] | None]:
        """Return the gain of the model over the first one, with its standard error; None if their bids differ."""
        first = next(iter(self.found.values()))
        gains: list[tuple[float, float] | None] = []
        for baseline, calibration in zip(first, self.found[name], strict=True):
            try:
                gains.append(gain(baseline, calibration))
            except ValueError:
                gains.append(None)
        return gains

    def to_json(self) -> dict[str, Any]:
        """Return the figures as JSON-able values."""
        models = []
        for name, checks in self.found.items():
            scores = []
            for check, won in zip(checks, self.gains(name), strict=True):
                better = {"brier_gain": won and won[0], "brier_gain_se": won and won[1]}
                scores.append(check.to_json() | better)
            models.append({"file": name, "model": self.kinds[name], "scores": scores})
        window = {"from_s": self.window.from_s, "until_s": self.window.until_s}
        return {"window": window, "models": models, "warnings": list(self.warnings)}


def check_models(
    files: Sequence[str],
    sources: Sources,
    *,
    from_time: str | None = None,
    to_time: str | None = None,
    allow_overlap: bool = False,
    report: Report = quiet,
) -> Check:
    """Return how well the models of `files` predict `sources` from `from_time` to `to_time`.

    Raises
    ------
    InputError
        If a file or a time cannot be used, if a model has seen the window (unless `allow_overlap`), or if none of its
        markets has prices there.
    """
    models = {name: read_model(name) for name in files}
    by_bids = sources.prices is not None
    if by_bids == bool(sources.availability):
        raise InputError("evictions check: want --prices FILE, or --availability FILE for a model by capacity")
    for name, model in models.items():
        if by_bids == (model.name == "capacity"):
            wanted = "--availability, for bids decide nothing there" if by_bids else "--prices"
            raise InputError(f"{name}: is a model of kind {model.name}; check it on {wanted}")
    source = sources.prices or sources.availability[0]
    report(0, 1, f"reading {source}")
    traces = prices_of(sources, source)[0] if by_bids else availability(sources)
    window = window_of(traces, source, from_time, to_time)
    warnings = []
    for name, model in models.items():
        if model.fitted is not None and model.fitted.overlaps(window):
            seen = f"{name}: was fitted on {model.fitted}, which overlaps {window}"
            if not allow_overlap:
                raise InputError(f"{seen}; check it on later months, or give --allow-overlap")
            warnings.append(f"{seen}: the result is not honest (--allow-overlap)")
    bids: dict[str, Any] = {} if by_bids else {"deltas_micros": (UP,), "highest_micros": UP}
    if any(isinstance(model, PredictorModel) for model in models.values()):
        bids["every_s"] = PREDICTORS_EVERY_S  # for all: they are compared on the same bids
    found = {name: calibrate(model, traces, window, report=report, **bids) for name, model in models.items()}
    for name, checks in found.items():
        if not checks[0].forecasts:
            raise InputError(f"{name}: none of its markets has an hour of prices in {window} of {source}")
    return Check(window, found, {name: model.name for name, model in models.items()}, tuple(warnings))


# Pictures


def draw_model(target: str, file: str, model: CurveModel) -> None:
    """Draw the survival curves of the model of `file` into the picture `target`."""
    fitted = "" if model.fitted is None else f", fitted on {model.fitted} UTC"
    plot_survival(target, f"{file.rsplit('/', 1)[-1]}: {model.name}{fitted}", model)


def draw_check(target: str, found: Check) -> None:
    """Draw observed over predicted shares into the picture `target`."""
    plot_reliability(target, f"checked on {found.window} UTC", found.found)
