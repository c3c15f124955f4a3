"""Simulated jobs under every billing model: both drivers, the models and a walk over the seconds charge the same."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings

from proteus_spot.bidding.backtest.billing_codes import billing_name, billing_settings, model_of
from proteus_spot.bidding.backtest.eviction_arrays import pack_table
from proteus_spot.bidding.backtest.outcomes import Outcome
from proteus_spot.bidding.backtest.parameters import JobParameters
from proteus_spot.bidding.backtest.price_arrays import pack
from proteus_spot.bidding.backtest.reference_cluster import Reference
from proteus_spot.bidding.backtest.replay.engine_replay import run_by_engine
from proteus_spot.bidding.backtest.runner import run_one
from proteus_spot.bidding.backtest.schemes import SchemeId
from proteus_spot.bidding.billing import (
    SPOT_BILLING,
    BillingModel,
    Flat,
    HourlyRefund,
    OnDemandHourly,
    PerSecondFirstHourFree,
    Repricing,
    total_prorata_micros,
)
from proteus_spot.bidding.billing.expected import KINDS
from proteus_spot.bidding.evictions.table import EvictionTable
from proteus_spot.bidding.forecast import Forecast
from proteus_spot.bidding.market.model import EndCause, Market
from proteus_spot.bidding.market.traces import Int64s, Trace, TraceSet
from tests.bidding.backtest.cases import DELTAS, TYPES, A, Case
from tests.bidding.backtest.test_simulate import HOUR, PLAIN, cases
from tests.bidding.billing.naive_bill import Rule as NaiveRule
from tests.bidding.billing.naive_bill import fixed, naive_bill, seconds, whole_hours
from tests.support.forecasts import foresight_of, foresights
from tests.support.markets import PROPERTY

FLAT = Decimal("0.014003")
MICRO = Decimal("0.000001")


@dataclass(frozen=True)
class Billed:
    """A billing model, and what the naive accounting knows of it."""

    model: BillingModel
    rule: NaiveRule
    max_life_s: int | None = None


MODELS: Mapping[str, Billed] = {
    "hourly": Billed(HourlyRefund(), whole_hours),
    "by second": Billed(PerSecondFirstHourFree(), seconds(at_once=False)),
    "by second, at once": Billed(PerSecondFirstHourFree(Repricing.CHANGE), seconds(at_once=True)),
    "by second, at once, at least 1000": Billed(
        PerSecondFirstHourFree(Repricing.CHANGE, 1000), seconds(at_once=True, least=1000)
    ),
    "by second, no minimum": Billed(PerSecondFirstHourFree(minimum_s=0), seconds(at_once=False, least=0)),
    "flat": Billed(Flat(14_003), fixed(FLAT)),
    "flat, half an hour": Billed(Flat(14_003, max_life_s=HOUR // 2), fixed(FLAT), HOUR // 2),
    "flat, two hours": Billed(Flat(14_003, max_life_s=2 * HOUR), fixed(FLAT), 2 * HOUR),
}
RULES = (SchemeId.STANDARD, SchemeId.PROTEUS, SchemeId.ABOVE, SchemeId.BEST)


def run_compiled(case: Case, setting: JobParameters, foresight: Forecast) -> tuple[Int64s, Int64s, TraceSet]:
    """Return the job's row, its purchases, and the markets that it bid in."""
    known = {market: np.array(events, dtype=np.int64).T for market, events in case.prices.items() if events}
    traces = TraceSet({market: Trace(*columns) for market, columns in known.items()})
    table = pack_table(case.evictions, traces.markets, foresight)
    packed = pack(traces, traces.markets, TYPES)
    row, purchases = run_one(packed, table, case.scheme, case.start_s, Reference(TYPES["small"]), setting)
    return row, purchases, traces


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name.lower())
def test_every_driver_and_accounting_charges_the_same(name: str, rule: SchemeId) -> None:
    billed = MODELS[name]

    @settings(PROPERTY, max_examples=12)  # long jobs, many models
    @given(case=cases(rules=(rule,)), foresight=foresights())
    def check(case: Case, foresight: Forecast) -> None:
        setting = replace(
            case.setting,
            checkpoint_s=0,
            restart_s=0,
            patient=int(rule is SchemeId.BEST),
            **billing_settings(billed.model),
        )
        row, purchases, traces = run_compiled(case, setting, foresight)
        tier = setting.reliable_count * setting.reliable_micros
        hours, rest_s = divmod(int(row[Outcome.RUNTIME_S]), HOUR)
        spot = int(row[Outcome.COST_MICROS]) - tier * hours - round(Decimal(tier) * rest_s / HOUR)

        cost, paid, free = by_model(purchases, traces, setting)
        assert (spot, row[Outcome.PAID_VCPU_S], row[Outcome.FREE_VCPU_S]) == (cost, paid, free)
        window_ends_s = case.start_s + setting.window_s
        assert Decimal(spot) * MICRO == by_hand(purchases, case, traces.markets, billed, window_ends_s)

        told = run_by_engine(
            *(traces, traces.markets, TYPES, case.evictions, foresight),
            *(case.scheme, case.start_s, Reference(TYPES["small"]), setting),
        )
        assert told.purchases.tolist() == purchases.tolist()
        assert told.row.tolist() == row.tolist()

    check()


def by_model(purchases: Int64s, traces: TraceSet, setting: JobParameters) -> tuple[int, int, int]:
    """Return (micro-dollars, paid and free vCPU-seconds) of the purchases, by the billing model."""
    cost = paid = free = 0
    for granted_s, row, count, _, ended_s, evicted in purchases.tolist():
        market = traces.markets[row]
        cause = EndCause.EVICTED if evicted else EndCause.USER
        charges = model_of(setting).charges(traces[market], count, granted_s, ended_s, cause, ended_s + 1)
        cost += total_prorata_micros(charges, ended_s)
        for charge in charges:
            used = min(ended_s - charge.hour_start_s, HOUR) * count * TYPES[market.instance_type].vcpu
            free, paid = (free + used, paid) if charge.refunded else (free, paid + used)
    return cost, paid, free


def by_hand(purchases: Int64s, case: Case, markets: tuple[Market, ...], billed: Billed, window_ends_s: int) -> Decimal:
    """Return the dollars of the purchases by the naive accounting, which finds the evictions itself."""
    total = Decimal(0)
    for granted_s, row, count, bid, ended_s, evicted in purchases.tolist():
        prices = [(at_s, micros * MICRO) for at_s, micros in case.prices[markets[row]]]
        leaves_s = None if ended_s == window_ends_s else ended_s
        bill = naive_bill(
            *(prices, count, bid * MICRO, granted_s, leaves_s, window_ends_s, billed.rule), max_life=billed.max_life_s
        )
        assert (bill.ended_at, bill.evicted_at is not None) == (ended_s, bool(evicted))
        total += bill.prorata
    return total


# -- by hand: 8 x 2 vCPUs of `small`, bid 0.10 $, no overhead --------------------------------------------------------


def plain(*prices: tuple[int, int], billing: BillingModel, **changes: int) -> Case:
    return Case({A: prices}, setting=replace(PLAIN, **billing_settings(billing), **changes))


def test_by_second_the_first_hour_is_free_if_it_is_broken_off_and_no_later_one() -> None:
    again = (PerSecondFirstHourFree(), ((0, 20_000), (1000, 100_001), (1100, 30_000)))
    told = plain(*again[1], billing=again[0]).compiled()
    assert (told.free_vcpu_s, told.evictions) == (16 * 1000, 1)
    assert told.cost_micros == round(8 * 30_000 * 2600 / 3600)
    late = ((0, 20_000), (HOUR, 36_000), (HOUR + 100, 100_001))
    told = plain(*late, billing=PerSecondFirstHourFree(), window_s=HOUR + 200, work_vcpu_s=16 * 2 * HOUR).compiled()
    assert (told.evictions, told.free_vcpu_s, told.paid_vcpu_s) == (1, 0, 16 * (HOUR + 100))
    assert told.cost_micros == 8 * 20_000 + 8 * 1000


def test_under_a_flat_price_a_longest_life_takes_every_machine_and_nothing_comes_back() -> None:
    told = plain((0, 20_000), billing=Flat(36_000, max_life_s=1800)).compiled()
    assert told.lives == [(A, 0, 8, 100_000, 1800, 1), (A, 1920, 8, 100_000, 3720, 1)]
    assert (told.cost_micros, told.free_vcpu_s) == (2 * 8 * 18_000, 0)


def test_a_longest_life_that_ends_with_the_window_has_not_ended() -> None:
    told = plain((0, 20_000), billing=Flat(36_000, max_life_s=1800), window_s=1800).compiled()
    assert (told.evictions, told.finished) == (0, False)


# -- what the rules weigh --------------------------------------------------------------------------------------------


def lives_of_best(model: BillingModel, *prices: tuple[int, int]) -> list[tuple[int, int, bool]]:
    """Return (bid, end, taken) of the purchases of `best`; half of a low bid's hours break off, few of a high one's."""
    chances = ((0.4, 0.5), (0.1, 0.2), (0.001, 0.002))
    setting = replace(PLAIN, max_spot_vcpus=16, allocation_vcpus=16, work_vcpu_s=16 * 2 * HOUR, patient=1)
    setting = replace(setting, eviction_overhead_s=300)
    case = Case(
        {A: prices},
        SchemeId.BEST,
        setting=replace(setting, **billing_settings(model)),
        foresight=foresight_of(chances, (0.0, 0.1, 1.0)),
    )
    return [(bid, ended_s, bool(taken)) for _, _, _, bid, ended_s, taken in case.compiled().lives]


def test_best_bids_low_where_an_eviction_is_free_and_high_where_it_brings_nothing() -> None:
    assert lives_of_best(HourlyRefund(), (0, 20_000))[0][0] == 20_000
    assert lives_of_best(PerSecondFirstHourFree(), (0, 20_000))[0][0] == 20_000
    assert lives_of_best(Flat(14_003), (0, 20_000))[0][0] == 40_000


def test_proteus_renews_what_is_dear_only_where_its_next_hour_may_come_back() -> None:
    """Nine hours in ten come back late, and on-demand machines work for less than those that are paid by the second."""
    tier = {"reliable_count": 1, "reliable_vcpus": 4, "reliable_micros": 40_000, "reliable_works": 1}
    setting = replace(PLAIN, work_vcpu_s=12 * 2 * HOUR, allocation_vcpus=8, max_spot_vcpus=8, **tier)
    evictions = EvictionTable(DELTAS, {A: ((0.9, float(HOUR)),) * len(DELTAS)})

    def first_ends_s(model: BillingModel) -> int:
        asked = replace(setting, **billing_settings(model))
        return int(
            Case({A: ((0, 30_000),)}, SchemeId.PROTEUS, evictions=evictions, setting=asked).compiled().lives[0][4]
        )

    assert first_ends_s(HourlyRefund()) == 2 * HOUR
    assert first_ends_s(PerSecondFirstHourFree()) == HOUR


def test_best_keeps_a_high_bid_over_a_fallen_price_where_no_later_hour_is_refunded() -> None:
    fallen = ((0, 30_000), (1000, 20_000))
    assert lives_of_best(HourlyRefund(), *fallen)[0] == (30_000, HOUR, False)
    assert lives_of_best(Flat(14_003), *fallen) == [(60_000, 2 * HOUR, False)]


# -- a model as settings ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_the_same_after_it_was_settings(name: str) -> None:
    model = MODELS[name].model
    assert model_of(replace(PLAIN, **billing_settings(model))) == model


def test_every_model_has_a_name_and_a_number() -> None:
    assert list(KINDS) == list(SPOT_BILLING)
    for name, kind in KINDS.items():
        assert billing_name(replace(PLAIN, billing=int(kind))) == name


def test_what_cannot_be_simulated_is_refused() -> None:
    with pytest.raises(ValueError, match="no job is simulated under OnDemandHourly"):
        billing_settings(OnDemandHourly(1))
    with pytest.raises(ValueError, match="minimum_s is 3601"):
        replace(PLAIN, minimum_s=3601)
    with pytest.raises(ValueError, match="7 is not a valid BillingKind"):
        replace(PLAIN, billing=7)
