"""Eviction models that a user gives to a job, a backtest or a plan, as the table that policies use."""

from collections.abc import Collection
from pathlib import Path

from proteus_spot.bidding.evictions.base import as_table
from proteus_spot.bidding.evictions.table import EvictionTable
from proteus_spot.bidding.market.model import Market
from proteus_spot.bidding.market.time_window import TimeWindow
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.market_data.eviction_model_files import read_model
from proteus_spot.studies.job_spec import JobSpec


def absolute_evictions(source: str) -> str:
    """Return a path as an absolute one, for other processes of this machine; a URL or an empty text as it is."""
    return str(Path(source).absolute()) if source and "://" not in source else source


def given_table(source: str, markets: Collection[Market]) -> tuple[EvictionTable, TimeWindow | None]:
    """Return the table of the model in a file for those of `markets` that it has, and the window of its fit.

    Raises
    ------
    InputError
        If the file holds no model.
    """
    model = read_model(source)
    return as_table(model, markets=markets), model.fitted


def job_table(spec: JobSpec) -> EvictionTable | None:
    """Return the table of the model that the job names, for its markets; None if it names none.

    Raises
    ------
    InputError
        If the file holds no model, or one that lacks some of the job's markets.
    """
    source = spec.transient.evictions
    if not source:
        return None
    markets = [Market.parse(text) for text in spec.transient.markets]
    table, _ = given_table(source, markets)
    if missing := [market for market in markets if market not in table.rows]:
        raise InputError(
            f"{source}: knows nothing of {missing[0]}, in which job {spec.job_id} may bid; fit a model that does, or "
            "leave that market out"
        )
    return table
