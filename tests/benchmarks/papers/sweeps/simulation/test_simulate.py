"""Whole sweeps over recorded prices: cases calculated by hand, properties of any sweep, jumps against every tick."""

from typing import Any

import numpy as np
import pytest

from proteus_spot.benchmarks.papers.sweeps.simulation.evictions import EvictionsByCapacity
from proteus_spot.benchmarks.papers.sweeps.simulation.generated_curves import generate_trials
from proteus_spot.benchmarks.papers.sweeps.simulation.offers import NoEvictions, TableProbabilities
from proteus_spot.benchmarks.papers.sweeps.simulation.outcome import SweepOutcome
from proteus_spot.benchmarks.papers.sweeps.simulation.simulate import SweepSimulator
from proteus_spot.benchmarks.papers.sweeps.simulation.simulated_machine import MachineTimes
from proteus_spot.benchmarks.papers.sweeps.simulation.sweep_prices import SweepPrices, sweep_prices
from proteus_spot.bidding.billing import SPOT_BILLING, BillingModel, HourlyRefund, PerSecondFirstHourFree, total_micros
from proteus_spot.bidding.evictions.table import fit
from proteus_spot.bidding.market.model import EndCause, Market
from proteus_spot.bidding.market.traces import TraceSet
from proteus_spot.bidding.synthetic.renewal_market import MarketClimate, generate
from proteus_spot.bidding.tuning.sweep_plan import SweepPlan
from proteus_spot.bidding.tuning.sweep_record import SweepRecord
from proteus_spot.bidding.tuning.trials import ENDED, SweepState, TrialState
from tests.benchmarks.papers.sweeps.simulation.markets import SMALL, TYPES, prices_of, trace, trials_of

HOUR_S = 3600
#: Above every bid: the price plus at most 0.2 dollars.
LEAP = 10_000_000


def simulator(prices: SweepPrices, record: Any, **changes: Any) -> SweepSimulator:
    """Return a simulator of sweeps that run every trial to its end."""
    usual = {"trials": 1, "max_trial_steps": 1, "stop": "none", "parallel": 16}
    plan = SweepPlan(**(usual | changes.pop("plan", {})))
    return SweepSimulator(record, plan, prices, changes.pop("probabilities", NoEvictions()), **changes)


def test_a_sweep_that_nothing_disturbs() -> None:
    prices = prices_of(small=trace((0, 36_000)))
    outcome = simulator(prices, trials_of([[3.0, 2.0, 1.0], [3.0, 2.5, 2.0]])).run(0)
    # Boot 60 s, three steps of 600 s, an upload of 10 s; the tick at 1920 sees the end of 1870.
    assert outcome.state is SweepState.FINISHED
    assert [(bill.launched_at_s, bill.ended_at_s, bill.cause) for bill in outcome.bills] == [
        (0, 1870, EndCause.USER)
    ] * 2
    assert (outcome.micros, outcome.refunded_micros, outcome.machine_s) == (2 * 10 * 1870, 0, 2 * 1870)
    assert (outcome.completion_s, outcome.evictions, outcome.free_share) == (1920, 0, 0.0)
    assert [(trial.state, trial.steps, trial.value) for trial in outcome.trials] == [
        (TrialState.FINISHED, 3, 1.0),
        (TrialState.FINISHED, 3, 2.0),
    ]
    assert outcome.best_trial == 0


def test_an_eviction_within_the_hour_makes_its_steps_free_and_loses_none() -> None:
    prices = prices_of(small=trace((0, 36_000), (2000, LEAP), (2500, 36_000)))
    outcome = simulator(prices, trials_of([[4.0, 3.0, 2.0, 1.0]])).run(0)
    (trial,) = outcome.trials
    first, second = trial.bills
    # The notice at 1880 finds three steps (660, 1260, 1860), which are uploaded.
    assert (first.ended_at_s, first.cause, first.kept_step, first.done_step) == (2000, EndCause.EVICTED, 3, 3)
    assert (first.micros, first.refunded_micros, first.free_steps) == (0, 10 * 2000, 3)
    # The next tick with an offer that is not the leap's: at 2520, 60 s of boot, 20 s to restore, a step, the upload.
    assert (second.from_step, second.kept_step, second.cause, second.free_steps) == (3, 4, EndCause.USER, 0)
    assert second.ended_at_s - second.launched_at_s == 60 + 20 + 600 + 10
    assert (trial.repeated_steps, trial.evictions, outcome.free_share) == (0, 1, 0.75)


def test_without_notice_steps_since_the_newest_upload_are_repeated() -> None:
    prices = prices_of(small=trace((0, 36_000), (1500, LEAP), (1600, 36_000)))
    record = trials_of([[float(n) for n in range(20, 0, -1)]], step_s=np.array([[100.0, 25.0]]))
    outcome = simulator(prices, record, times=MachineTimes(notice_s=0)).run(0)
    (trial,) = outcome.trials
    # Steps end at 160, 260, ... 1460 (14 of them); uploads begin at 360, 660, 960, 1260: step 12 is there, 13 and 14
    # are lost.
    assert (trial.bills[0].done_step, trial.bills[0].kept_step, trial.bills[0].free_steps) == (14, 12, 12)
    assert trial.repeated_steps == 2
    assert (trial.steps, trial.kept_steps) == (20, 20)


def test_theta_stops_all_but_the_best_and_these_are_predicted() -> None:
    prices = prices_of(3 * 86_400, small=trace((0, 36_000)))
    record = generate_trials(1, trials=6, steps=40, step_s=300.0)
    outcome = simulator(prices, record, plan={"stop": "earlycurve", "theta": 0.7, "mcnt": 2}).run(0)
    states = [trial.state for trial in outcome.trials]
    assert states.count(TrialState.FINISHED) == 2
    assert states.count(TrialState.STOPPED_EARLY) == 4
    assert {trial.steps for trial in outcome.trials} == {28, 40}
    assert outcome.best_trial == record.ranking()[0]
    whole = simulator(prices, record).run(0)
    assert outcome.micros < whole.micros


def test_a_plateau_is_finished_at_the_tick_after_it() -> None:
    prices = prices_of(3 * 86_400, small=trace((0, 36_000)))
    flat = [1.0 + 2.0 / step for step in range(1, 40)] + [1.05] * 60
    record = trials_of([flat, [3.0 - 0.01 * step for step in range(99)]])
    # Under this billing no machine is left after its hour, so that no tick is visited for that.
    plan = {"stop": "earlycurve", "theta": 1.0, "billing": "hourly-refund"}
    jumped, walked = (
        simulator(prices, record, plan=plan.copy(), billing=HourlyRefund(), every_tick=every_tick).run(0)
        for every_tick in (False, True)
    )
    assert jumped.trials == walked.trials
    assert [trial.state for trial in jumped.trials] == [TrialState.FINISHED] * 2
    assert 45 < jumped.trials[0].steps < 99
    assert jumped.trials[1].steps == 99


def test_after_an_hour_a_trial_moves_only_where_the_billing_brings_a_refund() -> None:
    # Spikes every 50 minutes, so that the table expects a refund, until the sweep begins: from then on it is calm.
    leaps = [
        (at_s + offset, price) for at_s in range(0, 40 * HOUR_S, 3000) for offset, price in ((0, 36_000), (2900, LEAP))
    ]
    held = TraceSet({SMALL: trace(*leaps, (40 * HOUR_S, 36_000))})
    table = fit(held, 0, 39 * HOUR_S)
    prices = sweep_prices(held, [SMALL], TYPES, 42 * HOUR_S, 60 * HOUR_S)
    record = trials_of([[float(n) for n in range(12, 0, -1)]])
    probabilities = TableProbabilities(table, prices.markets)
    moved = simulator(prices, record, probabilities=probabilities).run(42 * HOUR_S)
    assert len(moved.bills) > 1
    assert all(bill.machine_s >= HOUR_S for bill in moved.bills[:-1])
    stayed = simulator(
        prices,
        record,
        probabilities=probabilities,
        plan={"billing": "hourly-refund"},
        billing=HourlyRefund(),
    ).run(42 * HOUR_S)
    assert len(stayed.bills) == 1


def test_by_capacity_a_bid_decides_nothing() -> None:
    prices = prices_of(10 * 86_400, small=trace((0, 36_000), (9000, LEAP), (9100, 36_000)))
    record = trials_of([[float(n) for n in range(24, 0, -1)]] * 4)
    calm = simulator(prices, record, evictions=EvictionsByCapacity({SMALL: 0.0})).run(0)
    assert calm.evictions == 0
    rare = simulator(prices, record, evictions=EvictionsByCapacity({SMALL: 1 / 7200}, seed=1))
    first, again = rare.run(0), rare.run(0)
    assert first == again
    assert first.evictions > 0
    lives = [bill.machine_s for bill in first.bills if bill.cause is EndCause.EVICTED]
    assert min(lives) > 0


def test_prices_that_end_leave_the_sweep_running() -> None:
    prices = prices_of(1200, small=trace((0, 36_000)))
    outcome = simulator(prices, trials_of([[3.0, 2.0, 1.0]])).run(0)
    assert outcome.state is SweepState.RUNNING
    assert outcome.why == "the prices end before the sweep does"
    with pytest.raises(ValueError, match="no prices at 5000"):
        simulator(prices, trials_of([[1.0]])).run(5000)


def test_a_deadline_is_met_on_demand_where_spot_machines_would_miss_it() -> None:
    prices = prices_of(small=trace((0, 36_000)), large=trace((0, 300_000)))  # the large one costs more for a step
    record = trials_of([[float(n) for n in range(24, 0, -1)]] * 3)
    without = simulator(prices, record).run(0)
    late_s = without.completion_s // 2
    pressed = simulator(prices, record, deadline_s=late_s).run(0)
    assert pressed.state is SweepState.FINISHED
    assert pressed.completion_s <= late_s < without.completion_s
    assert pressed.micros > without.micros
    assert [trial.repeated_steps for trial in pressed.trials] == [0, 0, 0]


def test_a_sampler_sees_what_has_ended_and_a_setting_may_come_again() -> None:
    prices = prices_of(small=trace((0, 36_000)))
    record = trials_of([[3.0, 2.0, 1.0], [3.0, 2.5, 2.0], [9.0, 8.0, 7.0]])
    asked: list[tuple[int, list[float | None]]] = []

    class Sampler:
        def propose(self, sweep: SweepRecord, count: int) -> list[int]:
            asked.append((count, [trial.value for trial in sweep.trials.values()]))
            return [2, 0, 0, 1][len(sweep.trials) :][:count]

    plan = {"trials": 4, "adaptive": True, "parallel": 2}
    outcome = simulator(prices, record, plan=plan, source=Sampler()).run(0)
    assert [trial.params for trial in outcome.trials] == [{"rate": row} for row in (2, 0, 0, 1)]
    assert [trial.value for trial in outcome.trials] == [7.0, 1.0, 1.0, 2.0]
    assert [count for count, _ in asked] == [2, 2]
    assert asked[1][1] == [7.0, 1.0], "both had ended"
    walked = simulator(prices, record, plan=plan, source=Sampler(), every_tick=True).run(0)
    assert walked.trials == outcome.trials
    assert outcome.ticks < walked.ticks


# -- any sweep ------------------------------------------------------------------------------------------------------

#: A market that takes many bids within the hour.
ROUGH = MarketClimate(spike_every_s=2.0 * HOUR_S, spike_s=(180.0, 1200.0), spike_height=(3.0, 9.0), spike_spread=0.3)
MARKETS = (Market("small", "a"), Market("small", "b"), Market("large", "a"))


def rough_prices(seed: int) -> tuple[SweepPrices, TableProbabilities]:
    """Return two days of prices after a day of fit."""
    on_demand = {market: TYPES[market.instance_type].on_demand_micros for market in MARKETS}
    traces = TraceSet(generate(on_demand, 0, 4 * 86_400, np.random.default_rng(seed), climate=ROUGH))
    prices = sweep_prices(traces, MARKETS, TYPES, 86_400, 4 * 86_400)
    return prices, TableProbabilities(fit(traces, 0, 86_400), prices.markets)


def rough_sweep(seed: int, **changes: Any) -> tuple[SweepSimulator, SweepOutcome]:
    """Return a sweep of 5 trials in a rough market, drawn from a seed."""
    rng = np.random.default_rng(seed)
    prices, probabilities = rough_prices(seed)
    billing: BillingModel = (PerSecondFirstHourFree(), HourlyRefund())[int(rng.integers(2))]
    name = next(name for name in SPOT_BILLING if SPOT_BILLING[name] is type(billing))
    record = generate_trials(seed, trials=5, steps=int(rng.integers(10, 60)), step_s=float(rng.uniform(60, 900)))
    plan = {
        "stop": ("none", "earlycurve", "asha", "median")[int(rng.integers(4))],
        "theta": float(rng.uniform(0.3, 1.0)),
        "mcnt": int(rng.integers(1, 4)),
        "parallel": int(rng.integers(1, 7)),
        "billing": name,
    }
    times = MachineTimes(float(rng.uniform(0, 300)), (0, 30, 120)[int(rng.integers(3))], float(rng.uniform(60, 900)))
    options = {"billing": billing, "times": times, "refused_share": float(rng.choice([0.0, 0.2])), "plan": plan}
    sim = simulator(prices, record, probabilities=probabilities, **options | changes)
    return sim, sim.run(86_400 + int(rng.integers(0, 3600)), seed)


def check(sim: SweepSimulator, outcome: SweepOutcome) -> None:
    """Assert what holds for every sweep."""
    assert len(outcome.trials) == sim.record.trials
    assert outcome.micros == sum(total_micros(bill.charges) for bill in outcome.bills)
    assert outcome.micros == sum(trial.micros for trial in outcome.trials)
    assert outcome.state is SweepState.FINISHED
    assert outcome.best_trial is not None
    for trial in outcome.trials:
        assert trial.state in ENDED
        if trial.state is TrialState.FINISHED and trial.steps == sim.record.steps:
            assert trial.value == sim.record.values[trial.number, -1]
        at_step, at_s = 0, 0
        for bill in trial.bills:
            assert bill.from_step == at_step  # from the newest state, no step of it again
            assert bill.launched_at_s >= at_s
            assert bill.from_step <= bill.kept_step <= bill.done_step
            assert 0 <= bill.free_steps <= bill.kept_step - bill.from_step
            assert (bill.refunded_micros > 0) >= (bill.free_steps > 0)
            at_step, at_s = bill.kept_step, bill.launched_at_s
        # A trial that was stopped early keeps the reports of steps whose state was never uploaded.
        assert trial.kept_steps == trial.steps or (
            trial.state is not TrialState.FINISHED and trial.kept_steps < trial.steps
        )
        lost = sum(bill.done_step - bill.kept_step for bill in trial.bills)
        assert trial.repeated_steps <= lost


# Seed 37: a trial that did not pause in time is deployed again at the tick that gives its machine up.
@pytest.mark.parametrize("seed", [*range(8), 37])
def test_jumps_are_equal_to_every_tick(seed: int) -> None:
    sim, jumped = rough_sweep(seed)
    _, walked = rough_sweep(seed, every_tick=True)
    check(sim, jumped)
    assert jumped.trials == walked.trials
    assert (jumped.started_s, jumped.ended_s, jumped.state) == (walked.started_s, walked.ended_s, walked.state)
    assert jumped.ticks <= walked.ticks


def test_the_same_seed_gives_the_same_sweep() -> None:
    sim, first = rough_sweep(6)
    assert rough_sweep(6)[1] == first
    others = [sim.run(first.started_s, seed) for seed in range(6, 10)]
    assert len({outcome.micros for outcome in [first, *others]}) > 1


@pytest.mark.parametrize("seed", range(4))
def test_the_budget_is_never_passed_and_the_trials_are_saved_when_it_is_reached(seed: int) -> None:
    _, whole = rough_sweep(seed)
    budgets = [round(whole.micros * share) for share in (0.0, 0.3, 0.7)]
    outcomes = [rough_sweep(seed, budget_micros=budget)[1] for budget in budgets]
    for budget, outcome in zip(budgets, outcomes, strict=True):
        assert outcome.micros <= budget
        if outcome.state is not SweepState.FINISHED:  # on other machines, which cost less
            assert (outcome.state, outcome.why) == (SweepState.STOPPED, "budget")
            assert {trial.state for trial in outcome.trials} <= {*ENDED, TrialState.PAUSED, TrialState.WAITING}
    assert outcomes[0].state is SweepState.STOPPED
    assert outcomes[-1].micros > 0
    enough = rough_sweep(seed, budget_micros=100 * whole.micros + 1_000_000_000)[1]
    assert enough.trials == whole.trials


@pytest.mark.storm
@pytest.mark.parametrize("hundred", range(5))
def test_storm_of_sweeps(hundred: int) -> None:
    for seed in range(100 * (hundred + 1), 100 * (hundred + 2)):
        sim, jumped = rough_sweep(seed)
        check(sim, jumped)
        assert jumped.trials == rough_sweep(seed, every_tick=True)[1].trials, seed
        budget = round(jumped.micros * 0.01 * (seed % 100))
        assert rough_sweep(seed, budget_micros=budget)[1].micros <= budget, seed
