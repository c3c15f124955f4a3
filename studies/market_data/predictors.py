"""Eviction predictors: fitted to price files, kept for sweeps, and their ages."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from proteus_spot.bidding.evictions.calibration import Calibration, calibrate
from proteus_spot.bidding.evictions.fit_survival import Report, fit_survival, quiet
from proteus_spot.bidding.evictions.predictors.names import NEURAL, PREDICTORS
from proteus_spot.bidding.evictions.predictors.predictor_model import PredictorModel, fit_predictors
from proteus_spot.bidding.market.model import DAY_S, HOUR_S
from proteus_spot.bidding.market.time_window import TimeWindow
from proteus_spot.bidding.market.traces import TraceSet
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.extras import need_extra
from proteus_spot.infra.market_data.eviction_model_files import model_bytes, model_from_bytes
from proteus_spot.infra.settings import load_settings
from proteus_spot.infra.storage.blobs import BlobMissing, Blobs, blobs_at
from proteus_spot.studies.market_data.eviction_sources import Sources, prices_of, window_of

#: Seconds between two moments at which predictors are checked: a network answers a thousand times more slowly.
PREDICTORS_EVERY_S = 600
#: Share of a window that is left out of the fit, for the check.
_CHECKED = 0.2
#: Predictors that are fitted beforehand and kept; the others are fitted when a sweep begins.
KEPT = ("logistic", "tributary", "revpred")


@dataclass(frozen=True)
class FittedPredictors:
    """Predictors of markets, and their check on the later part of the window."""

    model: PredictorModel
    window: TimeWindow
    checks: Sequence[Calibration]

    def to_json(self) -> dict[str, Any]:
        """Return the figures as JSON-able values."""
        fitted = self.model.fitted
        return {
            "predictor": self.model.name,
            "fitted": None if fitted is None else {"from_s": fitted.from_s, "until_s": fitted.until_s},
            "markets": [str(market) for market in self.model.predictors],
            "without": {str(market): why for market, why in self.model.without.items()},
            "checked": {"from_s": self.window.from_s, "until_s": self.window.until_s},
            "scores": [check.to_json() for check in self.checks],
        }


def fit_and_check(
    name: str,
    sources: Sources,
    *,
    from_time: str | None = None,
    to_time: str | None = None,
    seed: int = 0,
    report: Report = quiet,
) -> FittedPredictors:
    """Return the predictors `name`, fitted to the first four fifths of the window and checked on the last.

    Raises
    ------
    InputError
        If a file or a time cannot be used, there is no such predictor, or no market has an hour of prices.
    """
    fitted = [each for each in PREDICTORS if each != "none"]
    if name not in fitted:
        raise InputError(f"--predictor {name}: there is no such predictor to fit; want {', '.join(fitted)}")
    if name in NEURAL:
        need_extra("neural", f"--predictor {name}")
    if sources.prices is None or sources.advisor is not None or sources.availability:
        raise InputError(f"--predictor {name}: is learnt from --prices FILE alone")
    report(0, 1, f"reading {sources.prices}")
    traces, _ = prices_of(sources, sources.prices)
    window = window_of(traces, sources.prices, from_time, to_time)
    parted_s = window.until_s - max(round(_CHECKED * (window.until_s - window.from_s)), HOUR_S)
    if parted_s - window.from_s < HOUR_S:
        raise InputError(f"--from and --to: {window} is too short for a fit and a check; give at least two hours")
    learnt, later = TimeWindow(window.from_s, parted_s), TimeWindow(parted_s, window.until_s)
    model = fit_predictors(name, traces, learnt, seed, report=report)
    if not model.markets:
        raise InputError(f"{sources.prices}: no market has an hour of prices in {learnt}; widen --from and --to")
    checks = calibrate(model, traces, later, every_s=PREDICTORS_EVERY_S, report=report)
    return FittedPredictors(model, later, checks)


def predictor_url(name: str) -> str:
    """Return the URL under which the settings keep the predictors of a name."""
    return _store().url_of(_file(name))


def keep_predictors(model: PredictorModel) -> None:
    """Write predictors where sweeps look for them."""
    _store().write_bytes(_file(model.name), model_bytes(model))


def kept_predictors(name: str) -> PredictorModel | None:
    """Return the kept predictors of a name; None if there are none.

    Raises
    ------
    InputError
        If the file cannot be used, or holds something else.
    """
    source = predictor_url(name)
    try:
        model = model_from_bytes(_store().read_bytes(_file(name)), source)
    except BlobMissing:
        return None
    if not isinstance(model, PredictorModel) or model.name != name:
        raise InputError(f"{source}: holds a model of kind {model.name}, not {name}; fit it again, or remove it")
    return model


def _store() -> Blobs:
    settings = load_settings()
    return blobs_at(settings.predictors_url or f"{settings.blob_url.rstrip('/')}/predictors", settings.region)


def _file(name: str) -> str:
    return f"{name}.npz"


def sweep_predictors(name: str, traces: TraceSet, window: TimeWindow) -> PredictorModel:
    """Return the predictors that a sweep asks, for the markets of `traces`.

    `table` is fitted to the traces. The others are kept ones; a market that they lack uses the survival curves of the
    traces, and `without` says so.

    Raises
    ------
    InputError
        If there is no such predictor, or its file cannot be used.
    """
    if name not in PREDICTORS:
        raise InputError(f"predictor {name}: there is no such predictor; want {', '.join(PREDICTORS)}")
    if name not in KEPT:
        return fit_predictors(name, traces, window)
    kept = kept_predictors(name)
    predictors = (
        {} if kept is None else {market: kept.predictors[market] for market in traces if market in kept.predictors}
    )
    why = f"`proteus evictions fit --predictor {name}` has fitted no model of it"
    return PredictorModel(
        name,
        MappingProxyType(predictors),
        replace(fit_survival(traces, window), name=name),
        MappingProxyType({market: why for market in traces if market not in predictors}),
    )


def predictor_ages(now_s: float) -> list[str]:
    """Return a line for each kept model: its markets, the end of its prices, and the days since then."""
    lines = []
    for name in KEPT:
        model = kept_predictors(name)
        if model is None or model.fitted is None:
            continue
        days = (now_s - model.fitted.until_s) / DAY_S
        lines.append(f"{name}: {len(model.predictors)} markets, fitted on {model.fitted} UTC, {days:.1f} days old")
    return lines
