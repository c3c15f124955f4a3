"""`PredictorModel`: the predictors of many markets, as sweeps ask them, and as an `EvictionModel` of BidBrain."""

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from proteus_spot.bidding.evictions.curve_model import CurveModel
from proteus_spot.bidding.evictions.curves import Float64s, falling, never_falling_with_delta
from proteus_spot.bidding.evictions.fit_survival import Report, fit_survival, quiet
from proteus_spot.bidding.evictions.lifetimes import grants_s
from proteus_spot.bidding.evictions.predictors.base import CannotFit, EvictionPredictor, NetworkPredictor
from proteus_spot.bidding.evictions.predictors.minute_features import prices_at
from proteus_spot.bidding.evictions.predictors.names import predictor_class
from proteus_spot.bidding.market.model import HOUR_S, Market
from proteus_spot.bidding.market.time_window import TimeWindow
from proteus_spot.bidding.market.traces import Int64s, Trace, TraceSet

#: Version of the record's format, and its kind, which tells it from the record of a `CurveModel`.
SCHEMA = 1
KIND = "predictor"
#: Probabilities are rounded to this many parts where they are the state of a market.
_PARTS = 200
#: Minutes of the fit over which the mean probability of a bid is taken.
_MEAN_MOMENTS = 256
_CURVES = "curves/"


@dataclass(frozen=True, eq=False)
class PredictorModel:
    """Predictors of markets, and survival curves for the markets without one.

    Attributes
    ----------
    name : str
        One of `bidding.evictions.predictors.names.PREDICTORS`.
    predictors : mapping of Market to EvictionPredictor
    mean : CurveModel
        Survival by delta over the window of the fit; for a market with a predictor, the mean of what it says there. It
        serves what takes no present state (the paper's table), and the markets without a predictor.
    without : mapping of Market to str
        Why a market of the prices has no predictor.
    """

    name: str
    predictors: Mapping[Market, EvictionPredictor]
    mean: CurveModel
    without: Mapping[Market, str]

    # What a sweep asks

    def of_markets(
        self,
        traces: Mapping[Market, Trace],
        markets: Sequence[Market],
        at_s: int,
        limit_micros: Int64s,
        histories: MutableMapping[int, Any] | None = None,
    ) -> Float64s:
        """Return P(the price is above the limit within the hour from `at_s`) of one bid in each market.

        It answers as `predict_proba` does, with one pass through the networks of all markets.

        Parameters
        ----------
        limit_micros : shape (markets,).
        histories : what networks made of the prices up to earlier moments, by moment; kept and used for a caller that
            comes back to a moment with the same markets and traces.

        Raises
        ------
        ValueError
            If a market has no price at the moment.
        """
        found = np.empty(len(markets))
        together: list[int] = []
        for row, market in enumerate(markets):
            trace = traces.get(market)
            is_known = trace is not None and at_s >= trace.times_s[0]
            if is_known and isinstance(self.predictors.get(market), NetworkPredictor):
                together.append(row)
                continue
            moments, limits = np.array([at_s], dtype=np.int64), limit_micros[row : row + 1]
            found[row] = self.predict_proba(traces, market, moments, limits)[0]
        if together:
            predictors = [self.predictors[markets[row]] for row in together]
            own, limits = [traces[markets[row]] for row in together], limit_micros[together]
            now = np.array([prices_at(trace, np.array([at_s]))[0] for trace in own])
            kind = cast(type[NetworkPredictor], type(predictors[0]))
            kept = {} if histories is None else histories
            if at_s not in kept:
                kept[at_s] = kind.histories(predictors, own, at_s)
            chances = kind.of_histories(predictors, kept[at_s], np.maximum(limits, now))
            found[together] = np.where(limits < now, 1.0, np.clip(chances, 0.0, 1.0))
        return found

    def predict_proba(
        self, traces: Mapping[Market, Trace], market: Market, at_s: Int64s, limit_micros: Int64s
    ) -> Float64s:
        """Return the probability of each bid of a market, shape (bids,).

        Parameters
        ----------
        traces : prices; events after a moment are ignored for it.
        at_s, limit_micros : shape (bids,).

        Notes
        -----
        A limit below the price is passed: 1. A market without a predictor is judged by the survival curves, one that
        had no price in the fit either counts as never taken.

        Raises
        ------
        ValueError
            If the market has no price at one of the moments.
        """
        trace = traces.get(market)
        if trace is None or (len(at_s) and int(np.min(at_s)) < trace.times_s[0]):
            raise ValueError(f"{market}: has no price at some of the moments")
        above = limit_micros - prices_at(trace, at_s)
        predictor = self.predictors.get(market)
        if predictor is None:
            found = 1 - self.mean.survival(market, above, HOUR_S)
        else:
            found = predictor.predict_proba(trace, at_s, np.maximum(limit_micros, limit_micros - above))
        return np.where(above < 0, 1.0, np.clip(found, 0.0, 1.0))

    # What BidBrain asks

    @property
    def markets(self) -> tuple[Market, ...]:
        """The markets of the model, sorted, with a predictor or without."""
        return self.mean.markets

    @property
    def fitted(self) -> TimeWindow | None:
        """The window of the fit."""
        return self.mean.fitted

    @property
    def bids_decide(self) -> bool:
        """Whether an eviction depends on the bid: always."""
        return True

    @property
    def n_states(self) -> int:
        """Number of states: 0 for the mean, then the probability of an eviction within the hour, rounded."""
        return _PARTS + 2

    def states(self, market: Market, trace: Trace, at_s: ArrayLike, delta_micros: ArrayLike) -> Int64s:
        """Return the state of the market at each moment for each delta, shape (moments, deltas)."""
        moments, deltas = np.asarray(at_s, dtype=np.int64), np.asarray(delta_micros, dtype=np.int64)
        shape = (len(moments), len(deltas))
        if market not in self.predictors or not len(trace):
            return np.zeros(shape, dtype=np.int64)
        limits = prices_at(trace, moments)[:, None] + np.maximum(deltas, 0)
        found = self.predictors[market].predict_proba(trace, np.repeat(moments, shape[1]), limits.ravel())
        rounded = 1 + np.rint(np.clip(found, 0, 1) * _PARTS).astype(np.int64).reshape(shape)
        return np.where((moments < trace.times_s[0])[:, None], 0, rounded)

    def survival(
        self, market: Market, delta_micros: ArrayLike, ahead_s: ArrayLike, state: ArrayLike | None = None
    ) -> Float64s:
        """Return P(not taken in less than `ahead_s`), the arguments broadcast; `state` None is the mean.

        A predictor speaks of the hour. Within it, evictions are spread as those of the survival curves; after it the
        hour's mean hazard continues.
        """
        mean = self.mean.survival(market, delta_micros, ahead_s)
        if state is None:
            return mean
        states, ahead = np.asarray(state, dtype=np.int64), np.asarray(ahead_s, dtype=np.float64)
        if ((states < 0) | (states >= self.n_states)).any():
            raise IndexError(f"a state that is none of the model's {self.n_states}")
        hour = 1 - self.mean.survival(market, delta_micros, HOUR_S)
        share = np.where(hour > 0, (1 - mean) / np.where(hour > 0, hour, 1), ahead / HOUR_S)
        chance = np.maximum(states - 1, 0) / _PARTS
        lived = np.where(ahead <= HOUR_S, 1 - chance * np.minimum(share, 1), (1 - chance) ** (ahead / HOUR_S))
        lived = np.where(np.asarray(delta_micros) < 0, 0.0, lived)
        return np.where(states == 0, mean, lived)

    # Saved and loaded

    def header(self) -> dict[str, Any]:
        """Return the fields that are not arrays, as JSON-able values."""
        return {
            "schema": SCHEMA,
            "kind": KIND,
            "name": self.name,
            "predictors": [str(market) for market in self.predictors],
            "without": {str(market): why for market, why in self.without.items()},
            "mean": self.mean.header(),
        }

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays by name."""
        found = {f"{_CURVES}{name}": array for name, array in self.mean.arrays().items()}
        for row, predictor in enumerate(self.predictors.values()):
            found |= {f"{row}/{name}": array for name, array in predictor.save().items()}
        return found

    @classmethod
    def from_record(cls, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> "PredictorModel":
        """Return the model of `header()` and `arrays()`; `ValueError` for any other input."""
        try:
            if (header["kind"], header["schema"]) != (KIND, SCHEMA):
                raise ValueError(
                    f"is {header['kind']!r} of schema {header['schema']!r}; this program reads {KIND!r} of {SCHEMA}"
                )
            kind = predictor_class(str(header["name"]))
            predictors = {
                Market.parse(name): kind.load(_under(f"{row}/", arrays))
                for row, name in enumerate(header["predictors"])
            }
            mean = CurveModel.from_record(header["mean"], _under(_CURVES, arrays))
            without = {Market.parse(name): str(why) for name, why in header["without"].items()}
            return cls(str(header["name"]), MappingProxyType(predictors), mean, without)
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            raise ValueError(f"not an eviction predictor: {error!r}") from None


def fit_predictors(
    name: str, traces: TraceSet, window: TimeWindow, seed: int = 0, *, report: Report = quiet
) -> PredictorModel:
    """Return the predictors `name` of all markets of `traces`, fitted to the prices of `window`.

    Notes
    -----
    The seed of a market is drawn from `seed` and its rank, so that the fit of one market can be repeated alone only
    among the same markets.

    Raises
    ------
    ValueError
        If there is no such predictor.
    """
    kind = predictor_class(name)
    curves = fit_survival(traces, window)
    predictors: dict[Market, EvictionPredictor] = {}
    without: dict[Market, str] = {}
    for rank, (market, trace) in enumerate(traces.items()):
        report(rank, len(traces), str(market))
        try:
            predictors[market] = kind().fit(trace, window, _seed(seed, rank))
        except CannotFit as error:
            without[market] = str(error)
    predictors = {market: each for market, each in predictors.items() if market in curves.markets}
    mean = _with_means(replace(curves, name=name), predictors, traces)
    return PredictorModel(name, MappingProxyType(predictors), mean, MappingProxyType(without))


def _seed(seed: int, rank: int) -> int:
    return int(np.random.SeedSequence([seed, rank]).generate_state(1)[0])


def _with_means(curves: CurveModel, predictors: Mapping[Market, EvictionPredictor], traces: TraceSet) -> CurveModel:
    """Return the curves with the hour's survival of each market as its predictor has it, in the mean of the window."""
    deltas, window = curves.curves.deltas_micros, curves.fitted
    if window is None or not predictors:
        return curves
    horizons = curves.curves.horizons_s.astype(np.float64)
    lived = curves.curves.survival.copy()
    for row, market in enumerate(curves.markets):
        if market not in predictors:
            continue
        trace = traces[market].between(window.from_s, window.until_s)
        minutes = grants_s(trace, window.from_s, window.until_s)
        moments = minutes[np.linspace(0, len(minutes) - 1, min(_MEAN_MOMENTS, len(minutes))).astype(np.int64)]
        limits = (prices_at(trace, moments)[:, None] + deltas).ravel()
        chance = predictors[market].predict_proba(trace, np.repeat(moments, len(deltas)), limits)
        hour = np.clip(chance, 0, 1).reshape(len(moments), len(deltas)).mean(axis=0)[:, None]
        lived[row, 0] = _scaled(lived[row, 0], horizons, hour)
    lived = never_falling_with_delta(falling(lived))
    return replace(curves, curves=curves.curves._replace(survival=lived))


def _scaled(lived: Float64s, horizons_s: Float64s, hour: Float64s) -> Float64s:
    """Return curves of shape (deltas, horizons), spread as `lived`, of which `hour` are taken within the hour."""
    own = 1 - lived[:, horizons_s == HOUR_S]
    share = np.where(own > 0, (1 - lived) / np.where(own > 0, own, 1), horizons_s / HOUR_S)
    return np.where(horizons_s <= HOUR_S, 1 - hour * np.minimum(share, 1), (1 - hour) ** (horizons_s / HOUR_S))


def _under(prefix: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
