"""Instance types of the markets of a run, a job or a backtest, at the on-demand price of a day."""

from collections.abc import Collection, Mapping
from datetime import date

from bidding.market.catalog import Catalog, RegionsDiffer
from bidding.market.model import InstanceType, Market
from infra.errors import InputError


def types_of(
    catalog: Catalog, markets: Collection[Market], day: date, *, where: str = "", name: str, mend: str, choose: str = ""
) -> Mapping[str, InstanceType]:
    """Return the types on sale on `day` in the regions of `markets`, by name; each has one price for all its markets.

    Parameters
    ----------
    where : prefix of a message, as in ``prices.csv: ``.
    name : name of the catalogue in a message.
    mend : the mend in a message, if a market has no price; ``{}`` stands for its type.
    choose : how the markets of one region are chosen, in a message; ``{}`` stands for the region.

    Raises
    ------
    InputError
        If a market has no on-demand price, or a type costs differently in the regions of its markets.
    """
    for market in markets:
        if (fault := catalog.fault(market, day, name)) is not None:
            raise InputError(f"{where}{fault}; {mend.format(market.instance_type)}")
    try:
        return catalog.types(markets, day)
    except RegionsDiffer as error:
        raise InputError(f"{where}{error}; choose markets of one region{choose.format(error.regions[0])}") from None
