"""How often the checkpointing schemes of a backtest save: every so many minutes, or as the prices of the fit advise."""

from dataclasses import replace
from math import isinf

from bidding.economics.elasticity import elasticity_record, mean_time_to_eviction_s
from bidding.evictions.fixed_bid import eviction_prob
from bidding.market.model import HOUR_S, MINUTE_S
from infra.errors import InputError
from tasks.backtest.inputs import BacktestInputs
from tasks.backtest.spec import MEAN_TIME, BacktestSpec


def at_interval(field: BacktestInputs, spec: BacktestSpec) -> tuple[BacktestInputs, BacktestSpec]:
    """Return `field` and `spec` with the interval that was asked for: among the elasticities, and in a note.

    Both as they are where none was asked for.

    Raises
    ------
    InputError
        If checkpoints would leave no time between them, or the fit says nothing of evictions.

    Notes
    -----
    The mean time to eviction is that of a bid at the on-demand price in the fit window: its β over all markets, at a
    constant hazard. All zones and schemes get the same interval.
    """
    asked = spec.checkpoint_interval
    if asked is None:
        return field, spec
    checkpointing = spec.elasticities[1]
    try:
        if asked == MEAN_TIME:
            mean_s = _mean_time_s(field)
            found = checkpointing.for_mean_time(mean_s)
            why = f", for {_lived(mean_s)} in the fit"
        else:
            found = checkpointing.every(float(asked) * MINUTE_S)
            why = ""
    except ValueError as error:
        raise InputError(
            f"--checkpoint-interval {asked}: {error} (one takes {checkpointing.write_s:.0f} s); give other minutes"
        ) from None
    others = [record for record in spec.elasticity if record["model"] != "checkpointing"]
    note = f"a checkpoint every {found.interval_s / MINUTE_S:,.0f} min, {found.overhead:.1%} of the time{why}"
    return (
        replace(field, notes=(*field.notes, note)),
        spec.model_copy(update={"elasticity": [*others, elasticity_record(found)]}),
    )


def _lived(mean_s: float) -> str:
    if isinf(mean_s):
        return "no bid at the on-demand price was taken"
    return f"a bid at the on-demand price lived {mean_s / HOUR_S:,.0f} h on average"


def _mean_time_s(field: BacktestInputs) -> float:
    fit = field.windows.fit
    on_demand = {market: field.types[market.instance_type].on_demand_micros for market in field.traces}
    beta = eviction_prob(field.traces, on_demand, fit.from_s, fit.until_s)
    if beta is None:
        raise ValueError(f"no market stood at its on-demand price or below in {fit}")
    return mean_time_to_eviction_s(beta)
