"""Instance types of the markets of a run, a job or a backtest, at the on-demand price of a day; the least budget."""

from collections.abc import Collection, Mapping
from datetime import UTC, date, datetime

from proteus_spot.bidding.economics.budget import purchase_micros
from proteus_spot.bidding.market.catalog import Catalog, RegionsDiffer
from proteus_spot.bidding.market.model import InstanceType, Market
from proteus_spot.bidding.market.money import usd
from proteus_spot.infra.errors import InputError
from proteus_spot.studies.job_spec import JobSpec

#: Seconds that a job lives at least, where seconds are paid: two ticks, and its end.
_LEAST_S = 900


def types_of(
    catalog: Catalog, markets: Collection[Market], day: date, *, where: str = "", name: str, fix: str, choose: str = ""
) -> Mapping[str, InstanceType]:
    """Return the types on sale on `day` in the regions of `markets`, by name; each has one price for all its markets.

    Parameters
    ----------
    where : prefix of a message, as in ``prices.csv: ``.
    name : name of the catalogue in a message.
    fix : the fix in a message, if a market has no price; ``{}`` stands for its type.
    choose : how the markets of one region are chosen, in a message; ``{}`` stands for the region.

    Raises
    ------
    InputError
        If a market has no on-demand price, or a type costs differently in the regions of its markets.
    """
    for market in markets:
        if (fault := catalog.fault(market, day, name)) is not None:
            raise InputError(f"{where}{fault}; {fix.format(market.instance_type)}")
    try:
        return catalog.types(markets, day)
    except RegionsDiffer as error:
        raise InputError(f"{where}{error}; choose markets of one region{choose.format(error.regions[0])}") from None


def check_budget(spec: JobSpec, catalog: Catalog, at_s: int, name: str) -> None:
    """Refuse a budget that does not pay the reliable tier until the job can be ended.

    Parameters
    ----------
    name : the budget as the user wrote it, for the message.

    Raises
    ------
    InputError
        With the least budget of use.
    """
    budget_micros, tier = spec.budget_micros, spec.reliable
    kind = catalog.find(Market(tier.instance_type, tier.zone), datetime.fromtimestamp(at_s, UTC).date())
    if budget_micros is None or kind is None:
        return
    whole_hours = not spec.transient.billing_model.by_second
    least = tier.count * purchase_micros(whole_hours, kind.on_demand_micros, _LEAST_S)
    if budget_micros < least:
        raise InputError(
            f"{name} {usd(budget_micros)}: the reliable tier alone, {tier.count} x {kind.name} at "
            f"{usd(kind.on_demand_micros)} an hour, costs {usd(least)} before the job can be ended; give more"
        )
