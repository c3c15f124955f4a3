"""The journal: what is written is read again, and leads to the same engine."""

import json
import math
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import proteus_spot.bidding
from proteus_spot.bidding.economics.job_model import JobModel
from proteus_spot.bidding.engine.engine import BidEngine
from proteus_spot.bidding.engine.events import (
    AllocationGone,
    AllocationGranted,
    AllocationHandedOver,
    AllocationRefused,
    AllocationTaken,
    BidEvent,
    JobClosed,
    JobOpened,
    JobReopened,
    MachineGone,
    MachineNoticed,
    MachineSeen,
    MachinesUnlisted,
    MarketCooled,
    NodesOffered,
    NoticeSeen,
    TickDue,
)
from proteus_spot.bidding.engine.holdings import EngineError
from proteus_spot.bidding.engine.journal import SCHEMA, JournalError, from_record, replay, to_record
from proteus_spot.bidding.engine.orders import Acquire, Lapse, Renew, Wait
from proteus_spot.bidding.forecast import MarketFeatures
from proteus_spot.bidding.market.model import EndCause
from proteus_spot.bidding.policies import POLICIES
from proteus_spot.bidding.policies.base import Candidate, Choice, Decision
from tests.support.forecasts import foresight_of, foresights, signals
from tests.support.markets import (
    MARKETS,
    PROPERTY,
    START_S,
    TYPES,
    XLARGE,
    XLARGE_B,
    allocations,
    gone,
    granted,
    jobs,
    opened,
    price_maps,
    reliable,
    spot,
    tables,
    tick,
)

NAMES = st.text(max_size=12)
TIMES = st.integers(0, 2**33)
FIGURES = st.floats(0, 1e9)
CANDIDATES = st.builds(
    Candidate,
    market=st.sampled_from(MARKETS),
    count=st.integers(1, 100),
    price_micros=st.integers(0, 10**9),
    delta_micros=st.integers(0, 400_000),
    eviction_prob=st.floats(0, 1),
    cost_usd=FIGURES,
    work=FIGURES,
    cost_per_work=FIGURES | st.just(math.inf),
    why_not=NAMES,
)
DECISIONS = st.builds(
    Decision,
    verdict=st.sampled_from(Choice),
    reason=NAMES,
    cost_per_work=FIGURES | st.just(math.inf),
    candidates=st.lists(CANDIDATES, max_size=3).map(tuple),
)
ITEMS = {
    JobOpened: st.builds(
        JobOpened,
        at_s=TIMES,
        job_id=NAMES,
        job=jobs(),
        policy=st.sampled_from(sorted(POLICIES)),
        types=st.dictionaries(st.sampled_from(sorted(TYPES)), st.sampled_from([*TYPES.values()])),
        markets=st.lists(st.sampled_from(MARKETS), unique=True).map(tuple),
        evictions=tables(),
        foresight=st.none() | foresights(),
    ),
    TickDue: st.builds(
        TickDue,
        at_s=TIMES,
        prices=price_maps(),
        buy=st.booleans(),
        left_out=st.dictionaries(st.sampled_from(MARKETS), NAMES),
        signals=st.dictionaries(st.sampled_from(MARKETS), signals(), max_size=3),
    ),
    AllocationGranted: st.builds(
        AllocationGranted,
        at_s=TIMES,
        order_id=NAMES,
        allocation=allocations(),
        instance_ids=st.lists(NAMES, max_size=3).map(tuple),
    ),
    AllocationRefused: st.builds(AllocationRefused, at_s=TIMES, order_id=NAMES, code=NAMES, message=NAMES),
    NoticeSeen: st.builds(NoticeSeen, at_s=TIMES, allocation_id=NAMES, takes_at_s=TIMES),
    AllocationGone: st.builds(AllocationGone, at_s=TIMES, allocation_id=NAMES, cause=st.sampled_from(EndCause)),
    AllocationHandedOver: st.builds(AllocationHandedOver, at_s=TIMES, allocation_id=NAMES, to_job=NAMES),
    AllocationTaken: st.builds(
        AllocationTaken,
        at_s=TIMES,
        order_id=NAMES,
        allocation=allocations(),
        instance_ids=st.lists(NAMES, max_size=3).map(tuple),
        from_job=NAMES,
        bought_for=NAMES,
    ),
    MachineSeen: st.builds(MachineSeen, at_s=TIMES, allocation_id=NAMES, instance_id=NAMES),
    MachineNoticed: st.builds(MachineNoticed, at_s=TIMES, allocation_id=NAMES, instance_id=NAMES, takes_at_s=TIMES),
    MachineGone: st.builds(
        MachineGone, at_s=TIMES, allocation_id=NAMES, instance_id=NAMES, cause=st.sampled_from(EndCause)
    ),
    MachinesUnlisted: st.builds(MachinesUnlisted, at_s=TIMES, count=st.integers(1, 100)),
    MarketCooled: st.builds(MarketCooled, at_s=TIMES, market=st.sampled_from(MARKETS), why=NAMES),
    NodesOffered: st.builds(
        NodesOffered,
        at_s=TIMES,
        instance_ids=st.lists(NAMES, max_size=3).map(tuple),
        machines=st.none() | st.integers(0, 100),
    ),
    JobClosed: st.builds(JobClosed, at_s=TIMES),
    JobReopened: st.builds(JobReopened, at_s=TIMES),
    Acquire: st.builds(
        Acquire,
        order_id=NAMES,
        market=st.sampled_from(MARKETS),
        count=st.integers(1, 100),
        bid_micros=TIMES,
        decision=DECISIONS,
    ),
    Renew: st.builds(Renew, allocation_id=NAMES, hour=TIMES, decision=DECISIONS),
    Lapse: st.builds(Lapse, allocation_id=NAMES, hour=TIMES, before_s=TIMES, decision=DECISIONS),
    Wait: st.builds(Wait, decision=DECISIONS),
}


def strict(record: Mapping[str, Any]) -> Any:
    """Return `record` after a round through JSON that any reader can read."""
    return json.loads(json.dumps(record, allow_nan=False))


@pytest.mark.parametrize("kind", ITEMS, ids=lambda kind: kind.__name__)
def test_what_is_written_is_read_again(kind):
    @PROPERTY
    @given(ITEMS[kind])
    def round_trip(item):
        record = to_record(item)
        assert (record["schema"], record["kind"]) == (SCHEMA, kind.__name__)
        again = from_record(strict(record))
        assert type(again) is kind
        assert again == item
        assert json.dumps(to_record(again)) == json.dumps(record)  # also the order of the keys

    round_trip()


def test_a_record_does_not_depend_on_the_order_of_a_mapping():
    one, other = ({XLARGE: "0.05", XLARGE_B: "0.06"}, {XLARGE_B: "0.06", XLARGE: "0.05"})
    assert json.dumps(to_record(tick(START_S, one))) == json.dumps(to_record(tick(START_S, other)))


@pytest.mark.parametrize("cost", [math.inf, -math.inf, math.nan])
def test_figures_that_json_cannot_say_are_written_as_null(cost):
    record = to_record(Wait(Decision(Choice.WAIT, "", cost)))
    assert record["decision"]["cost_per_work"] is None
    assert from_record(strict(record)).decision.cost_per_work == math.inf


TICK = to_record(tick(START_S, {XLARGE: "0.05"}))
GRANT = to_record(granted(spot()))


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (TICK | {"schema": 2}, "schema 2 is not 1"),
        ({"kind": "TickDue"}, "schema None is not 1"),
        (TICK | {"kind": "Tock"}, "unknown kind 'Tock'"),
        (TICK | {"kind": None}, "unknown kind 'None'"),
        (TICK | {"kind": ["TickDue"]}, "unknown kind"),
        ({"schema": 1, "kind": "TickDue", "at_s": 1}, "a TickDue record cannot be read: KeyError('prices')"),
        ({name: value for name, value in TICK.items() if name != "signals"}, "KeyError('signals')"),
        (TICK | {"prices": {"c4.large": 1}}, "not a market: 'c4.large'"),
        (TICK | {"prices": None}, "a TickDue record cannot be read"),
        (TICK | {"prices": [1]}, "a TickDue record cannot be read"),
        (GRANT | {"allocation": None}, "a AllocationGranted record cannot be read"),
        (GRANT | {"allocation": {"market": 3, "tier": "transient"}}, "a AllocationGranted record cannot be read"),
        (GRANT | {"allocation": GRANT["allocation"] | {"tier": "solid"}}, "'solid' is not a valid Tier"),
        (to_record(gone("a", 1)) | {"cause": "fire"}, "'fire' is not a valid EndCause"),
        (to_record(opened()) | {"job": {"scaling_efficiency": 7}}, "must be in (0, 1]"),
        (to_record(opened()) | {"evictions": {}}, "not an eviction table"),
        (to_record(opened()) | {"foresight": {}}, "not a foresight"),
        (TICK | {"signals": {"c4.large": {}}}, "not a market: 'c4.large'"),
        (TICK | {"signals": {"c4.large/a": {}}}, "a TickDue record cannot be read"),
        (TICK | {"signals": {"c4.large/a": {"price": 1}}}, "a TickDue record cannot be read"),
        (None, "a record is an object, not None"),
        ([1, 2], "a record is an object"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_line(record, said):
    for read in (from_record, lambda item: replay([item])):
        with pytest.raises(JournalError) as error:
            read(record)
        assert said in str(error.value)
        assert str(error.value).startswith("journal: ")
        assert "\n" not in str(error.value)


# -- replay -----------------------------------------------------------------------------------------------------------


def foreseen() -> list[dict[str, Any]]:
    """Return the journal of a job under `best`, as JSON: bought, taken, waited, bought again and let go."""
    calm = foresight_of(((0.2, 0.5), (0.1, 0.3), (0.01, 0.02)))
    told = {
        market: MarketFeatures(50_000, 40_000, 60, 1, 2, 50_000.1, 45_000.2, 1e5 / 3) for market in (XLARGE, XLARGE_B)
    }
    prices, at_s = {XLARGE: "0.05", XLARGE_B: "0.06"}, START_S
    job = JobModel(allocation_vcpus=32, max_spot_vcpus=32, eviction_overhead_s=300)
    return written(
        replace(opened(job, "best"), foresight=calm),
        granted(reliable()),
        replace(tick(at_s, prices), signals=told),
        granted(spot("j-buy-0", XLARGE, 8, "0.05")),
        gone("j-buy-0", at_s + 600),
        replace(tick(at_s + 600, prices), signals=told),
        replace(tick(at_s + 900, prices), signals=told),
        granted(spot("j-buy-1", XLARGE_B, 8, "0.06", at_s + 900)),
        replace(tick(at_s + 4300, {XLARGE: "0.05", XLARGE_B: "0.05"}), signals=told),
    )


def story() -> list[dict[str, Any]]:
    """Return the journal of a job that sees a bit of everything, as JSON."""
    job = JobModel(allocation_vcpus=16, max_spot_vcpus=48)
    prices = {XLARGE: "0.05", XLARGE_B: "0.05"}  # equal, so that only the order of the markets decides
    hour = START_S + 3600
    return written(
        opened(job),
        granted(reliable()),
        tick(START_S, prices),
        granted(spot("j-buy-0", XLARGE, 4, "0.0501")),
        tick(START_S + 120, prices),
        AllocationRefused(START_S + 121, "j-buy-1", "InsufficientInstanceCapacity", "none left"),
        tick(START_S + 240, prices),
        granted(spot("j-buy-2", XLARGE_B, 4, "0.4", START_S + 240)),
        NoticeSeen(START_S + 600, "j-buy-0", START_S + 720),
        tick(START_S + 600, {XLARGE: "0.06", XLARGE_B: "0.05"}),
        gone("j-buy-0", START_S + 720),
        tick(hour + 30, {XLARGE_B: "0.06"}),
        granted(spot("j-buy-3", XLARGE_B, 4, "0.4", hour + 30)),
        tick(hour + 150, {}),
        JobClosed(hour + 200),
        tick(hour + 3600, {XLARGE_B: "0.01"}),
    )


def written(*events: BidEvent) -> list[dict[str, Any]]:
    """Return the journal of `events` and of what is ordered on them, as JSON."""
    engine, records = BidEngine(), []
    for event in events:
        records.append(to_record(event))
        records += [to_record(order) for order in engine.handle(event)]
    return strict(records)


def test_a_replay_passes_over_the_orders_and_leads_to_the_same_engine():
    records = story()
    kinds = {record["kind"] for record in records}
    assert {"Acquire", "Wait", "Renew", "Lapse"} <= kinds  # the story has something to tell
    whole, events = replay(records), replay(r for r in records if "decision" not in r)
    assert whole.holdings.positions == events.holdings.positions
    assert (whole.holdings.open_orders, whole.holdings.closed, whole.holdings.job_id) == (
        events.holdings.open_orders,
        True,
        "j",
    )
    whole.validate()


def test_a_replay_of_what_cannot_follow_fails():
    with pytest.raises(EngineError, match="opened before"):
        replay([to_record(opened()), to_record(opened())])


REPLAYER = """
import json, sys
from proteus_spot.bidding.engine.engine import BidEngine
from proteus_spot.bidding.engine.journal import from_record, to_record
engine = BidEngine()
for record in json.load(sys.stdin):
    if "decision" not in record:
        event = from_record(record)
        for order in engine.handle(event):
            print(json.dumps(to_record(order), allow_nan=False))
"""


def test_best_waits_after_an_eviction_and_lets_go_what_has_fallen():
    kinds = [record["kind"] for record in foreseen() if "decision" in record]
    assert kinds == ["Acquire", "Wait", "Acquire", "Lapse", "Wait"]


@pytest.mark.parametrize("tell", [story, foreseen])
def test_a_replay_gives_the_same_orders_in_other_processes_whatever_their_hash_seed(tell):
    records = tell()
    ordered = [json.dumps(record) for record in records if "decision" in record]
    root = str(Path(proteus_spot.bidding.__file__).parents[1])
    for seed in ("1", "2"):
        ran = subprocess.run(
            [sys.executable, "-c", REPLAYER],
            input=json.dumps(records),
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": root},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert ran.stdout.splitlines() == ordered
