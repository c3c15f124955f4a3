"""Conversion of a billing model to fields of `JobParameters`, which the compiled loop uses, and back."""

from proteus_spot.bidding.backtest.parameters import JobParameters
from proteus_spot.bidding.billing import BillingModel, Flat, HourlyRefund, PerSecondFirstHourFree, Repricing
from proteus_spot.bidding.billing.expected import KINDS, BillingKind


def billing_settings(model: BillingModel) -> dict[str, int]:
    """Return the fields of `JobParameters` that describe how spot machines are charged.

    Raises
    ------
    ValueError
        If the model is not one of `bidding.billing.SPOT_BILLING`.
    """
    match model:
        case HourlyRefund():
            return {"billing": int(BillingKind.HOURLY_REFUND)}
        case PerSecondFirstHourFree():
            return {
                "billing": int(BillingKind.PER_SECOND),
                "reprices": int(model.repricing is Repricing.CHANGE),
                "minimum_s": model.minimum_s,
            }
        case Flat():
            return {
                "billing": int(BillingKind.FLAT),
                "flat_micros": model.price_micros,
                "max_life_s": model.max_life_s or 0,
            }
    raise ValueError(f"no job is simulated under {model}")


def model_of(setting: JobParameters) -> BillingModel:
    """Return the billing model of a setting."""
    match BillingKind(setting.billing):
        case BillingKind.PER_SECOND:
            return PerSecondFirstHourFree(Repricing.CHANGE if setting.reprices else Repricing.HOUR, setting.minimum_s)
        case BillingKind.FLAT:
            return Flat(setting.flat_micros, setting.max_life_s or None)
        case _:
            return HourlyRefund()


def billing_name(setting: JobParameters) -> str:
    """Return the name of the billing model, as in `bidding.billing.SPOT_BILLING`."""
    return next(name for name, kind in KINDS.items() if kind == setting.billing)
