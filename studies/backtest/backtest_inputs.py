"""Inputs of a backtest: prices, the eviction table fitted to them, reference cluster, checkpoint interval."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import isinf

import numpy as np

from proteus_spot.bidding.backtest.eviction_arrays import EvictionArrays, pack_table
from proteus_spot.bidding.backtest.price_arrays import Markets, pack
from proteus_spot.bidding.backtest.reference_cluster import Reference, by_zone, cheapest
from proteus_spot.bidding.backtest.schemes import SchemeId
from proteus_spot.bidding.economics.elasticity import elasticity_record, mean_time_to_eviction_s
from proteus_spot.bidding.evictions.fixed_bid import eviction_prob
from proteus_spot.bidding.evictions.table import EvictionTable, fit
from proteus_spot.bidding.forecast import Forecast, fit_forecast
from proteus_spot.bidding.market.catalog import Catalog
from proteus_spot.bidding.market.model import DAY_S, HOUR_S, MINUTE_S, InstanceType, Market
from proteus_spot.bidding.market.traces import TraceSet
from proteus_spot.bidding.synthetic.renewal_market import TYPICAL, generate
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.market_data.catalogs import read_catalog
from proteus_spot.studies.backtest.backtest_spec import ALL, EACH, MEAN_TIME, BacktestSpec
from proteus_spot.studies.backtest.capacity import learnt_of, read_capacity, scarce
from proteus_spot.studies.backtest.windows import Split, choose_windows
from proteus_spot.studies.market_data.eviction_tables import given_table
from proteus_spot.studies.market_data.local_market import BEGIN, TYPES, ZONES
from proteus_spot.studies.market_data.on_demand_prices import types_of
from proteus_spot.studies.market_data.trace_files import Report, open_traces

#: Rules that use the signals of the markets.
_READ_SIGNALS = (SchemeId.BEST,)
#: Length of the generated market in days, if no file is named.
_GENERATED_DAYS = 90


@dataclass(frozen=True)
class BacktestInputs:
    """Inputs that schemes are compared on.

    Attributes
    ----------
    source : name of the prices for a reader.
    types : the types on sale on the evaluation's first day, at that day's price.
    markets : those that may be bid in, sorted.
    evictions, foresight : fitted to the fit window alone; no foresight if no scheme uses it.
    notes : remarks that the reader of any figure needs.
    """

    source: str
    traces: TraceSet
    types: Mapping[str, InstanceType]
    markets: tuple[Market, ...]
    evictions: EvictionTable
    foresight: Forecast | None
    reference: Reference
    windows: Split
    notes: tuple[str, ...]

    def packed(self, markets: tuple[Market, ...]) -> tuple[Markets, EvictionArrays]:
        """Return `markets` and their eviction table as the simulator's arrays."""
        return pack(self.traces, markets, self.types), pack_table(self.evictions, markets, self.foresight)

    def zones(self, wanted: list[str]) -> dict[str, tuple[Market, ...]]:
        """Return the markets of each requested zone, by name; `ALL` comes last.

        Raises
        ------
        InputError
            If there is no such zone.
        """
        zones = by_zone(self.markets)
        for name in wanted:
            if name != EACH and name not in zones:
                names = ", ".join(name for name in zones if name != ALL)
                raise InputError(f"--zones {name}: is not a zone of {self.source}; give each, all, or some of {names}")
        return {name: zones[name] for name in zones if name in wanted or (name != ALL and EACH in wanted)}


def open_inputs(spec: BacktestSpec, report: Report) -> BacktestInputs:
    """Return the inputs of `spec`: read, checked and fitted to.

    Raises
    ------
    InputError
        If a file cannot be used, a window is invalid, or nothing can be compared.
    """
    capacity = read_capacity(spec)
    source, traces, catalog = _prices(spec, report)
    left: list[str] = []
    if capacity:
        traces, left = scarce(source, traces, capacity)
    windows = choose_windows(
        traces,
        fit_from=spec.fit_from,
        fit_to=spec.fit_to,
        evaluate_from=spec.evaluate_from,
        evaluate_to=spec.evaluate_to,
        allow_overlap=spec.allow_overlap,
        allow_gaps=spec.allow_gaps,
    )
    every = traces
    traces = TraceSet({market: trace for market, trace in every.items() if market.instance_type not in spec.left_out})
    if not traces:
        raise InputError(f"{source}: has only types that are left out; give other --leave-out, or another file")
    types = types_of(
        catalog,
        traces.markets,
        datetime.fromtimestamp(windows.evaluation.from_s, UTC).date(),
        where=f"{source}: ",
        name=_named(spec),
        fix="give a --catalog that has it, or leave it out by --leave-out {} or --market",
        choose=" by --region {} or --market",
    )
    evictions, warnings = _evictions(source, traces, capacity, windows, spec, report)
    reference = _reference(source, traces, types, spec)
    notes = [*windows.notes, *left, *warnings]
    if spec.prices is None:
        notes.insert(0, f"no --prices given: the prices are those of the {source}")
    if dropped := sorted({market.instance_type for market in every} & set(spec.left_out)):
        notes.append(f"left out: {', '.join(dropped)} (--leave-out)")
    if unseen := [str(market) for market in traces if market not in evictions.rows]:
        why = "without prices in the fit window" if spec.evictions is None else f"not in {spec.evictions}"
        notes.append(f"{why}, hence not bid in: {', '.join(unseen)}")
    if not spec.has_bound:
        notes.append(f"no clairvoyant bound: it knows hourly-refund alone, not {spec.billing}")
    if spec.billing == "flat" and len({market.instance_type for market in traces}) > 1:
        notes.append("a machine of any type costs the flat price; give --market TYPE/ZONE to compare one type's zones")
    return BacktestInputs(
        source=source,
        traces=traces,
        types=types,
        markets=traces.markets,
        evictions=evictions,
        foresight=_foresight(traces, types, windows, spec, report) if evictions.bids_decide else None,
        reference=reference,
        windows=windows,
        notes=tuple(notes),
    )


def _evictions(
    source: str, traces: TraceSet, capacity: TraceSet, windows: Split, spec: BacktestSpec, report: Report
) -> tuple[EvictionTable, list[str]]:
    """Return the eviction table of the given model, or else of the fit window, and notes on it."""
    if spec.evictions is None:
        report(0, 1, f"learning from {windows.fit}")
        learnt = learnt_of(capacity, windows) if capacity else fit(traces, windows.fit.from_s, windows.fit.until_s)
        if not learnt.rows:
            raise InputError(
                f"--fit-from and --fit-to: no market has an hour of prices in {windows.fit}; let it be longer"
            )
        return learnt, []
    report(0, 1, f"reading {spec.evictions}")
    given, fitted = given_table(spec.evictions, traces.markets)
    if not given.rows:
        raise InputError(f"--evictions {spec.evictions}: knows no market of {source}; fit a model of these markets")
    if fitted is None or not windows.evaluation.overlaps(fitted):
        return given, []
    what = f"--evictions {spec.evictions} was fitted on {fitted}, and has seen what is evaluated ({windows.evaluation})"
    if not spec.allow_overlap:
        raise InputError(f"{what}; evaluate later months by --from, or give --allow-overlap")
    return given, [f"the result is not honest: {what} (--allow-overlap)"]


def _foresight(
    traces: TraceSet, types: Mapping[str, InstanceType], windows: Split, spec: BacktestSpec, report: Report
) -> Forecast | None:
    """Return the forecast fitted to the signals of the fit window, if a scheme uses it: it takes seconds."""
    reads = [name for name in spec.compared if spec.bids(name) and spec.scheme(name).rule in _READ_SIGNALS]
    if not reads:
        return None
    report(0, 1, f"learning from the signals of {windows.fit}")
    learnt = fit_forecast(traces, types, windows.fit.from_s, windows.fit.until_s)
    if learnt is None:
        raise InputError(
            f"--fit-from and --fit-to: no hour of {windows.fit} began at or below the on-demand price, so "
            f"{reads[0]} has nothing to learn bids from; let it be of other days, or have the job on demand alone"
        )
    return learnt


def _prices(spec: BacktestSpec, report: Report) -> tuple[str, TraceSet, Catalog]:
    """Return the name of the prices, the prices, and the catalogue."""
    if spec.prices is not None:
        report(0, 1, f"reading {spec.prices}")
        found = open_traces(
            spec.prices, catalog=spec.catalog, region=spec.region, product=spec.product, wanted=spec.markets
        )
        return spec.prices, *found
    report(0, 1, "generating a market")
    source = f"generated market of seed {spec.seed}"
    catalog = read_catalog(spec.catalog, spec.region)
    markets = [Market(name, zone) for name in TYPES for zone in ZONES]
    on_sale = types_of(
        catalog,
        markets,
        BEGIN.date(),
        where=f"{source}: ",
        name=_named(spec),
        fix="give a --catalog that has it, for the prices follow the on-demand price, or --prices",
    )
    on_demand = {market: on_sale[market.instance_type].on_demand_micros for market in markets}
    wanted = on_demand
    if spec.markets:
        if unknown := [text for text in spec.markets if text not in map(str, on_demand)]:
            raise InputError(f"--market {unknown[0]}: the generated market has {', '.join(map(str, on_demand))}")
        wanted = {market: price for market, price in on_demand.items() if str(market) in spec.markets}
    from_s = int(BEGIN.timestamp())
    until_s = from_s + _GENERATED_DAYS * DAY_S
    vcpus = {name: on_sale[name].vcpu for name in TYPES}
    traces = generate(on_demand, from_s, until_s, np.random.default_rng(spec.seed), climate=TYPICAL, vcpus=vcpus)
    return source, TraceSet({market: traces[market] for market in wanted}), catalog


def _named(spec: BacktestSpec) -> str:
    return "the shipped catalogue" if spec.catalog is None else spec.catalog


def _reference(source: str, traces: TraceSet, types: Mapping[str, InstanceType], spec: BacktestSpec) -> Reference:
    vcpus = spec.machines * spec.machine_vcpus
    if spec.reference_type is not None:
        if spec.reference_type not in types:
            raise InputError(f"--reference {spec.reference_type}: is not on sale in {_named(spec)}; it has others")
        return Reference(types[spec.reference_type], vcpus)
    try:
        return cheapest(traces, types, vcpus)
    except ValueError as error:
        raise InputError(f"{source}: {error}; name one by --reference TYPE") from None


def at_interval(field: BacktestInputs, spec: BacktestSpec) -> tuple[BacktestInputs, BacktestSpec]:
    """Return `field` and `spec` with the requested checkpoint interval: among the elasticities, and in a note.

    Without a requested interval both are returned unchanged.

    Raises
    ------
    InputError
        If checkpoints would leave no time between them, or the fit window has no data on evictions.

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
