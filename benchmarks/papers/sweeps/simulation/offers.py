"""The offers of a tick: prices, the bids that are drawn, and the probability of an eviction under each."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from proteus_spot.benchmarks.papers.sweeps.simulation.sweep_prices import UNKNOWN, SweepPrices
from proteus_spot.bidding.evictions.predictors.predictor_model import PredictorModel
from proteus_spot.bidding.evictions.states import changes
from proteus_spot.bidding.evictions.table import EvictionTable
from proteus_spot.bidding.market.model import HOUR_S, Market
from proteus_spot.bidding.market.money import Micros
from proteus_spot.bidding.market.traces import Int64s, TraceSet
from proteus_spot.bidding.tuning.provisioning.bids import draw_bid
from proteus_spot.bidding.tuning.sweep_events import Offer


class Probabilities(Protocol):
    """What a sweep's predictor answers: evictions within an hour, for one bid in each market."""

    def of_bids(self, at_s: int, prices_micros: Int64s, bids_micros: Int64s) -> NDArray[np.float64]:
        """Return the probability that each bid, placed now, is evicted within an hour; shapes (markets,)."""
        ...


class NoEvictions:
    """Predictor `none`: nothing is ever evicted."""

    def of_bids(self, at_s: int, prices_micros: Int64s, bids_micros: Int64s) -> NDArray[np.float64]:
        """Return zeros."""
        return np.zeros(len(bids_micros))


class TableProbabilities:
    """Predictor `table`: β of the market and the bid delta, as `EvictionTable.of_bid`.

    Parameters
    ----------
    table : fitted on earlier prices than those of the sweep.
    markets : in the order of `SweepPrices.markets`.
    """

    def __init__(self, table: EvictionTable, markets: Sequence[Market]) -> None:
        self._deltas = np.array(table.deltas_micros, dtype=np.int64)
        self._betas = np.zeros((len(markets), len(self._deltas)))
        rows = [row for row, market in enumerate(markets) if market in table.rows]
        if rows:
            self._betas[rows] = table.grid([markets[row] for row in rows])[0]
        self._rows = np.arange(len(markets))
        self._known = np.isin(self._rows, rows)

    def of_bids(self, at_s: int, prices_micros: Int64s, bids_micros: Int64s) -> NDArray[np.float64]:
        """Return β of each bid; 0 in a market without history, 1 for a bid below the price."""
        deltas = bids_micros - prices_micros
        columns = np.maximum(np.searchsorted(self._deltas, deltas, side="right") - 1, 0)
        return np.where((deltas < 0) & self._known, 1.0, self._betas[self._rows, columns])


class Clairvoyant:
    """Knows future prices: whether each bid is evicted within the hour. The bound of what a predictor can bring."""

    def __init__(self, traces: TraceSet, markets: Sequence[Market]) -> None:
        self._traces = [traces[market] for market in markets]

    def of_bids(self, at_s: int, prices_micros: Int64s, bids_micros: Int64s) -> NDArray[np.float64]:
        """Return 1 where the price passes the bid in less than an hour, else 0."""
        ends_s = [trace.first_above(int(bid), at_s) for trace, bid in zip(self._traces, bids_micros, strict=True)]
        return np.array([float(end_s is not None and end_s < at_s + HOUR_S) for end_s in ends_s])


class PredictorProbabilities:
    """The predictors that a live sweep asks; a market without one is judged by the survival curves of its prices.

    Parameters
    ----------
    markets : in the order of `SweepPrices.markets`.
    """

    def __init__(self, model: PredictorModel, traces: TraceSet, markets: Sequence[Market]) -> None:
        self._model, self._markets = model, markets
        self._traces = {market: changes(traces[market]) for market in markets}
        #: Sweeps of several applications begin at the same ticks.
        self._histories: dict[int, Any] = {}

    def of_bids(self, at_s: int, prices_micros: Int64s, bids_micros: Int64s) -> NDArray[np.float64]:
        """Return each market's probability; 0 where no price is known."""
        found = np.zeros(len(bids_micros))
        columns = np.flatnonzero(prices_micros != UNKNOWN)
        markets = [self._markets[column] for column in columns.tolist()]
        found[columns] = self._model.of_markets(self._traces, markets, at_s, bids_micros[columns], self._histories)
        return found


class OfferSource(Protocol):
    """The offers of a simulated market."""

    def at(self, tick: int, decision: int) -> Mapping[Market, Offer]:
        """Return the offers of every market with a known price.

        Parameters
        ----------
        tick : number of the tick within the prices.
        decision : number of the tick within the sweep, for the draw of the bids.
        """
        ...


class OfferTable:
    """Makes the offers of ticks.

    Parameters
    ----------
    seed : of the bids.
    """

    def __init__(self, prices: SweepPrices, probabilities: Probabilities, seed: int) -> None:
        self._prices, self._probabilities, self._seed = prices, probabilities, seed

    def at(self, tick: int, decision: int) -> dict[Market, Offer]:
        """Return the offers; see `OfferSource`."""
        prices = self._prices
        row = prices.prices_micros[tick]
        now: list[Micros] = row.tolist()
        averages: list[Micros] = prices.averages_micros[tick].tolist()
        bids = [
            draw_bid(self._seed, market, decision, price, on_demand)
            for market, price, on_demand in zip(prices.markets, now, prices.on_demand_micros, strict=True)
        ]
        chances = self._probabilities.of_bids(prices.tick_at_s(tick), row, np.array(bids, dtype=np.int64)).tolist()
        return {
            market: Offer(now[column], averages[column], bids[column], chances[column], on_demand)
            for column, (market, on_demand) in enumerate(zip(prices.markets, prices.on_demand_micros, strict=True))
            if now[column] != UNKNOWN
        }
