"""Every scheme through the compiled driver, the live engine and a naive walk: they decide and pay alike."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from proteus_spot.bidding.backtest.outcomes import Outcome
from proteus_spot.bidding.backtest.parameters import JobParameters
from proteus_spot.bidding.backtest.reference_cluster import Reference
from proteus_spot.bidding.backtest.replay.engine_replay import ReplayResult, run_by_engine
from proteus_spot.bidding.backtest.schemes import SchemeId
from proteus_spot.bidding.backtest.schemes.scheme_registry import ORACLE, SCHEMES, Scheme, scheme
from proteus_spot.bidding.engine.engine import BidEngine
from proteus_spot.bidding.engine.journal import from_record, to_record
from proteus_spot.bidding.engine.orders import Acquire, Lapse, Renew, Wait
from proteus_spot.bidding.market.traces import Trace, TraceSet
from tests.bidding.backtest import naive
from tests.bidding.backtest.cases import TYPES, WANTED_VCPUS, A, B, C, Case
from tests.bidding.backtest.test_simulate import ALL_OR_NOTHING, DEAR, PLAIN, TWO_OF_EIGHT, cases
from tests.support.forecasts import foresights
from tests.support.markets import PROPERTY

NAMES = (*SCHEMES, "fixed-delta:0.01")
REFERENCE = Reference(TYPES["small"], WANTED_VCPUS)


@st.composite
def jobs(draw: st.DrawFn, of: Scheme) -> Case:
    """Jobs on the scheme's own elasticity, if not with its numbers."""
    case = draw(cases(rules=(of.rule,)))
    saves = "checkpoint_s" in of.settings
    setting = replace(
        case.setting,
        checkpoint_s=draw(st.sampled_from([120, 600, 1800])) if saves else 0,
        restart_s=draw(st.sampled_from([0, 300])) if saves else 0,
        reliable_works=int(of.rule is SchemeId.NONE) or draw(st.integers(0, 1)),
        patient=of.settings.get("patient", 0),
    )
    delta_micros = int(of.parameters[0]) if of.parameters else 0
    evictions = replace(case.evictions, bids_decide=draw(st.sampled_from([True, True, False])))
    return replace(case, setting=setting, parameter=delta_micros, evictions=evictions, foresight=draw(foresights()))


def by_engine(case: Case, of: Scheme) -> ReplayResult:
    known = {market: np.array(events, dtype=np.int64).T for market, events in case.prices.items() if events}
    traces = TraceSet({market: Trace(*columns) for market, columns in known.items()})
    return run_by_engine(
        traces, traces.markets, TYPES, case.evictions, case.foresight, of, case.start_s, REFERENCE, case.setting
    )


def as_walked(told: ReplayResult, case: Case) -> naive.Told:
    """Return it in the naive walk's terms."""
    row, markets = told.row, sorted(case.prices)
    return naive.Told(
        cost_micros=int(row[Outcome.COST_MICROS]),
        runtime_s=int(row[Outcome.RUNTIME_S]),
        paid_vcpu_s=int(row[Outcome.PAID_VCPU_S]),
        free_vcpu_s=int(row[Outcome.FREE_VCPU_S]),
        evictions=int(row[Outcome.EVICTIONS]),
        finished=bool(row[Outcome.FINISHED]),
        lives=[(markets[life[1]], *map(int, life[[0, 2, 3, 4, 5]])) for life in told.purchases],
    )


@pytest.mark.parametrize("name", NAMES)
def test_both_drivers_and_a_walk_over_its_seconds_make_the_same_of_a_job(name: str) -> None:
    of = scheme(name)

    @settings(PROPERTY, max_examples=20)  # long walks
    @given(case=jobs(of))
    def check(case: Case) -> None:
        told = by_engine(case, of)
        walked = as_walked(told, case)
        event(
            f"{min(walked.evictions, 3)} evictions, {min(len(walked.lives), 3)} purchases, finished {walked.finished}"
        )
        assert walked == case.compiled()
        assert walked == case.naive()
        assert told.row[Outcome.PURCHASES] == len(walked.lives)
        assert replayed(told) == [item for item in told.journal if isinstance(item, Acquire | Renew | Lapse | Wait)]

    check()


SAVING = replace(PLAIN, checkpoint_s=600, restart_s=300)
STEPS = replace(TWO_OF_EIGHT, checkpoint_s=600, restart_s=300)


@pytest.mark.parametrize(
    "case",
    [
        Case({A: ((0, 20_000), (1000, DEAR), (1100, 30_000))}, setting=SAVING),  # all is lost
        Case({A: ((0, 20_000), (1300, DEAR)), B: ((0, 90_000), (2150, 440_001)), C: ((0, 99_000),)}, setting=SAVING),
        Case(  # lost twice, and part of it once; C lapses, and A follows
            {A: ((0, 20_000), (600, 420_001), (3700, 20_000)), C: ((0, 99_000), (100, 15_000), (2900, DEAR))},
            SchemeId.PROTEUS,
            evictions=ALL_OR_NOTHING,
            setting=replace(STEPS, resize_overhead_s=20),
        ),
        Case(  # the second eight vCPUs are bought after a checkpoint's work has begun
            {A: ((0, 20_000), (600, 20_101), (700, 20_000), (4000, 20_101), (4500, 20_000))},
            SchemeId.ABOVE,
            setting=STEPS,
        ),
        Case(  # one of two is lost, and later all that is left
            {
                A: ((0, 20_000), (2500, 20_101), (2600, 20_000)),
                C: ((0, 99_000), (100, 15_000), (700, 15_101), (5000, 15_000)),
            },
            SchemeId.ABOVE,
            setting=STEPS,
        ),
        Case(
            {A: ((0, 20_000), (700, 20_101), (710, 20_000), (4000, 20_101), (4500, 20_000))},
            SchemeId.ABOVE,
            setting=replace(STEPS, resize_overhead_s=20),
        ),
    ],
    ids=["lost", "lost again", "lapsed", "steps", "some lost", "steps with stops"],
)
def test_checkpoints_and_restarts_are_alike_in_the_corners(case: Case) -> None:
    walked = as_walked(by_engine(case, case.scheme), case)
    assert walked == case.compiled()
    assert walked == case.naive()


def test_a_hundred_small_allocations_are_held_at_a_time() -> None:
    """One a tick, of the smallest machine, till the cap is reached after three hours and twenty minutes."""
    small = replace(PLAIN, allocation_vcpus=2, max_spot_vcpus=200, work_vcpu_s=10**9)
    case = Case({A: ((0, 20_000),), C: ((0, 21_000),)}, SchemeId.ABOVE, setting=small)
    walked = as_walked(by_engine(case, case.scheme), case)
    assert len(walked.lives) == 100
    assert walked == case.compiled()


def replayed(told: ReplayResult) -> list[Acquire | Renew | Lapse | Wait]:
    """Return what a fresh engine orders when it is told the journal's events."""
    again = BidEngine()
    events = [item for item in told.journal if not isinstance(item, Acquire | Renew | Lapse | Wait)]
    return [order for event in events for order in again.handle(from_record(to_record(event)))]  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["standard+agileml", "just-above", "proteus", "best"])
def test_without_a_ceiling_both_drivers_decide_alike_too(name: str) -> None:
    """The standard strategy's bid is refused, then, where the cheapest market stands above its on-demand price."""
    of = scheme(name)

    @settings(PROPERTY, max_examples=10)
    @given(case=jobs(of))
    def check(case: Case) -> None:
        case = replace(case, setting=replace(case.setting, ceiling=0))
        assert as_walked(by_engine(case, of), case) == case.compiled()

    check()


@pytest.mark.parametrize(
    ("of", "changes", "says"),
    [
        (scheme(ORACLE), {}, "no live policy decides as the rule ORACLE"),
        (scheme("proteus"), {"patient": 1}, "patient is 1: the live policy proteus is otherwise"),
        (scheme("best"), {"patient": 0}, "patient is 0: the live policy best is otherwise"),
        (scheme("best"), {"patient": 1, "checkpoint_s": 600}, "best is for jobs that lose nothing"),
    ],
)
def test_what_no_live_policy_would_decide_alike_is_refused(of: Scheme, changes: dict[str, int], says: str) -> None:
    setting = replace(JobParameters(work_vcpu_s=1, window_s=1), **changes)
    with pytest.raises(ValueError, match=says):
        run_by_engine(TraceSet({}), (), {}, Case({}).evictions, None, of, 0, REFERENCE, setting)
