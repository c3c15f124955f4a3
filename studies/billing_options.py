"""Options of the billing models, as written on the command line, in a form or in a job's file."""

from proteus_spot.bidding.billing import SPOT_BILLING, BillingModel, Repricing
from proteus_spot.infra.market_data.request_files import OPTIONS, Place, amount_micros, duration_s

#: How EC2 charges spot machines today.
TODAYS_BILLING = "per-second-first-hour-free"
#: The billing model that each option belongs to.
_OWNERS = {"flat-price": "flat", "max-life": "flat", "reprice": "per-second-first-hour-free"}


def billing_model(
    name: str,
    *,
    flat_price: str | None = None,
    max_life: str | None = None,
    reprice: str | None = None,
    place: Place = OPTIONS,
) -> BillingModel:
    """Return the billing model `name` with its own options.

    Parameters
    ----------
    flat_price, max_life : dollars per instance-hour, and hours, as they are written.
    place : where they are written, for error messages.

    Raises
    ------
    InputError
        If there is no such model, an option is wrong, is of another model, or is missing.
    """
    if name not in SPOT_BILLING:
        raise place.fault("billing", name, f"is not known; there are {', '.join(SPOT_BILLING)}")
    for option, value in (("flat-price", flat_price), ("max-life", max_life), ("reprice", reprice)):
        if value is not None and name != _OWNERS[option]:
            owner = f"{place.mark}billing {_OWNERS[option]}"
            raise place.fault(_as_written(place, option), value, f"is for {owner}, not for {name}; leave it out")
    if name == "flat":
        price_name = _as_written(place, "flat-price")
        if flat_price is None:
            raise place.fault("billing", name, f"needs a price; give {place.mark}{price_name} USD, per instance-hour")
        life_s = None if max_life is None else duration_s(place, _as_written(place, "max-life"), max_life)
        return SPOT_BILLING[name](price_micros=amount_micros(place, price_name, flat_price), max_life_s=life_s)
    if reprice is not None:
        return SPOT_BILLING[name](repricing=Repricing(reprice))
    return SPOT_BILLING[name]()


def _as_written(place: Place, option: str) -> str:
    """Return an option's name; a field of a file or a form has it with underscores."""
    return option if place.mark else option.replace("-", "_")
