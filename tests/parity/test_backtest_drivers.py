"""The compiled driver and the live engine decide and pay alike, job by job, purchase by purchase."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bidding.actions import Acquire, Lapse, Renew, Wait
from bidding.backtest.by_engine import run_by_engine
from bidding.backtest.driver import run_one
from bidding.backtest.markets import pack
from bidding.backtest.reference import Reference
from bidding.backtest.schemes import Rule
from bidding.backtest.schemes.named import Scheme
from bidding.backtest.tables import pack_table
from bidding.engine import BidEngine
from bidding.foresight import Foresight
from bidding.journal import from_record, to_record
from bidding.traces import Trace, TraceSet
from tests.bidding.backtest.cases import TYPES, Case
from tests.bidding.backtest.test_simulate import cases
from tests.support.foresights import foresights
from tests.support.markets import PROPERTY

POLICIES = {Rule.NONE: "on-demand", Rule.PROTEUS: "proteus", Rule.BEST: "best"}


@pytest.mark.parametrize("rule", POLICIES, ids=lambda rule: POLICIES[rule])
def test_both_drivers_decide_and_pay_alike(rule: Rule) -> None:
    @settings(PROPERTY, max_examples=30)  # long jobs
    @given(case=cases(rules=(rule,)), foresight=foresights(), works=st.integers(0, 1))
    def check(case: Case, foresight: Foresight, works: int) -> None:
        known = {market: np.array(events, dtype=np.int64).T for market, events in case.prices.items() if events}
        traces = TraceSet({market: Trace(*columns) for market, columns in known.items()})
        setting = replace(
            case.setting, checkpoint_s=0, restart_s=0, reliable_works=works, patient=int(rule is Rule.BEST)
        )
        markets = traces.markets
        row, purchases = run_one(
            pack(traces, markets, TYPES),
            pack_table(case.evictions, markets, foresight),
            Scheme(rule),
            case.start_s,
            Reference(TYPES["small"]),
            setting,
        )
        told = run_by_engine(traces, markets, TYPES, case.evictions, foresight, POLICIES[rule], setting, case.start_s)
        assert told.row.tolist() == row.tolist()
        assert told.purchases.tolist() == purchases.tolist()

        again = BidEngine()  # and its journal replays to the same orders
        orders = [item for item in told.journal if isinstance(item, Acquire | Renew | Lapse | Wait)]
        events = [item for item in told.journal if not isinstance(item, Acquire | Renew | Lapse | Wait)]
        said = [order for event in events for order in again.handle(from_record(to_record(event)))]  # type: ignore[arg-type]
        assert said == orders

    check()


def test_checkpoints_are_nothing_that_the_engine_knows() -> None:
    setting = replace(Case({}).setting, checkpoint_s=600)
    with pytest.raises(ValueError, match="lose nothing"):
        run_by_engine(TraceSet({}), (), {}, Case({}).evictions, None, "proteus", setting, 0)
