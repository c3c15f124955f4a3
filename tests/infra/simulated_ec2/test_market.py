"""The rules of the simulated market beyond the contract: changes in order, life spans, faults, and a naive oracle."""

import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proteus_spot.bidding.evictions.fit_capacity import capacity_trace
from proteus_spot.bidding.market.model import EndCause, Market
from proteus_spot.bidding.market.spot_market import LaunchRefused, MarketUnreachable, TokenMismatch
from proteus_spot.bidding.market.traces import Trace, TraceSet
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.simulated_ec2.faults import Fault, FaultKind
from proteus_spot.infra.simulated_ec2.held_instances import LaunchOptions
from proteus_spot.infra.simulated_ec2.market import SimSpotMarket
from proteus_spot.infra.simulated_ec2.rules.behaviour import Ec2Behaviour
from proteus_spot.infra.simulated_ec2.rules.machine_changes import ChangeKind, NoticeMode
from proteus_spot.infra.simulated_ec2.stored_market import read_state, traces_digest, write_state
from tests.support.market_servers import T0, TRACES, A, B, ManualClock, request, sold


def market(clock, **options):
    return SimSpotMarket(TRACES, sold, clock.now_s, **options)


def drain_changes(sim):
    return [(change.at_s - T0, change.kind.value) for change in sim.advance()]


def test_changes_come_in_time_order_also_over_a_jump():
    clock = ManualClock(T0 + 10)
    sim = market(clock, boot_s=30)
    sim.launch(request("t"))
    clock.at_s = T0 + 600
    sim.launch(request("u", market=B, bid="0.04"))
    clock.at_s = T0 + 9000
    assert drain_changes(sim) == [
        (10, "launched"),
        (40, "running"),
        (600, "launched"),
        (630, "running"),
        (880, "marked"),
        (1000, "evicted"),
    ]
    assert drain_changes(sim) == []


def test_time_never_goes_backwards():
    clock = ManualClock(T0 + 2000)
    sim = market(clock)
    sim.advance()
    clock.at_s = T0 + 10
    with pytest.raises(LaunchRefused):  # as the price is at 2000 s
        sim.launch(request("t"))
    assert sim.now_s == T0 + 2000


def test_a_notice_shorter_than_its_time_comes_at_launch():
    clock = ManualClock(T0 + 950)
    sim = market(clock)
    (fact,) = sim.launch(request("t"))
    assert fact.notice_at_s == T0 + 1000
    assert drain_changes(sim) == [(950, "launched"), (950, "running"), (950, "marked")]


def test_a_market_may_give_no_notice():
    clock = ManualClock(T0 + 10)
    sim = market(clock, notice=NoticeMode.NONE)
    sim.launch(request("t"))
    clock.at_s = T0 + 1000
    assert drain_changes(sim) == [(10, "launched"), (10, "running"), (1000, "evicted")]


def test_the_longest_life_ends_spot_instances_alone():
    clock = ManualClock(T0 + 10)
    sim = market(clock, max_life_s=500)
    sim.launch(request("spot"))
    sim.launch(request("on-demand", bid=None))
    clock.at_s = T0 + 600
    spot, on_demand = sim.log()
    assert (spot.ended_at_s, spot.end_cause) == (T0 + 510, EndCause.EVICTED)
    assert on_demand.alive


def test_what_ended_is_forgotten_by_describe_but_not_by_the_log():
    clock = ManualClock(T0 + 10)
    sim = market(clock, behaviour=Ec2Behaviour(remember_s=3600))
    sim.launch(request("t"))
    clock.at_s = T0 + 4600
    assert len(sim.describe()) == 1
    clock.at_s = T0 + 4601
    assert sim.describe() == []
    assert len(sim.log()) == 1


def test_ids_are_the_same_for_a_seed_and_differ_between_seeds():
    def ids(seed):
        return [fact.instance_id for fact in market(ManualClock(T0 + 10), seed=seed).launch(request("t", count=3))]

    assert ids("a") == ids("a")
    assert not set(ids("a")) & set(ids("b"))


# Faults


def test_a_fault_strikes_so_often_there_and_then():
    clock = ManualClock(T0 + 600)
    sim = market(clock)
    sim.add_fault(Fault(FaultKind.CAPACITY, at_s=T0 + 700, market=B, times=2))
    sim.launch(request("1", market=B, bid="0.04"))
    clock.at_s = T0 + 700
    sim.launch(request("2", market=A))
    for _ in range(2):
        with pytest.raises(LaunchRefused):
            sim.launch(request("3", market=B, bid="0.04"))
    sim.launch(request("3", market=B, bid="0.04"))


def test_an_unavailable_market_is_unreachable_in_the_call_named():
    clock = ManualClock(T0 + 10)
    sim = market(clock)
    sim.add_fault(Fault(FaultKind.UNAVAILABLE, operation="describe", times=1))
    sim.launch(request("t"))
    with pytest.raises(MarketUnreachable):
        sim.describe()
    assert len(sim.describe()) == 1


def test_a_kill_of_a_market_takes_what_is_alive_there_then():
    clock = ManualClock(T0 + 600)
    sim = market(clock)
    (early,) = sim.launch(request("early"))
    sim.terminate([early.instance_id])
    sim.launch(request("a", count=2))
    sim.launch(request("od", bid=None))
    sim.launch(request("b", market=B, bid="0.04"))
    sim.add_fault(Fault(FaultKind.KILL, at_s=T0 + 700, market=A))
    clock.at_s = T0 + 800
    ends = {(fact.token, fact.ended_at_s, fact.end_cause) for fact in sim.log()}
    assert ends == {
        ("early", T0 + 600, EndCause.USER),
        ("a", T0 + 700, EndCause.EVICTED),
        ("od", None, None),
        ("b", None, None),
    }


def test_a_kill_that_is_late_happens_now():
    clock = ManualClock(T0 + 600)
    sim = market(clock)
    (fact,) = sim.launch(request("t"))
    sim.add_fault(Fault(FaultKind.KILL, at_s=T0, instance_id=fact.instance_id))
    assert sim.fact(fact.instance_id).ended_at_s == T0 + 600
    assert [change.kind for change in sim.advance()][-1] is ChangeKind.EVICTED


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"kind": "flood"},
        {"kind": "kill"},
        {"kind": "throttle", "operation": "bribe"},
        {"kind": "capacity", "market": "nowhere"},
        {"kind": "capacity", "colour": "red"},
    ],
)
def test_a_record_that_is_no_fault_is_refused(record):
    with pytest.raises(ValueError):
        Fault.from_record(record)


def test_a_kill_must_name_a_spot_instance_there_is():
    clock = ManualClock(T0 + 10)
    sim = market(clock)
    (fact,) = sim.launch(request("t", bid=None))
    for name in (fact.instance_id, "i-nobody"):
        with pytest.raises(ValueError):
            sim.add_fault(Fault(FaultKind.KILL, instance_id=name))


# Against a second by second oracle


@st.composite
def stories(draw):
    times = sorted(draw(st.sets(st.integers(0, 40), min_size=1, max_size=8)))
    prices = draw(st.lists(st.integers(2, 6), min_size=len(times), max_size=len(times)))
    calls = draw(
        st.lists(st.tuples(st.integers(0, 60), st.sampled_from(["launch", "end"]), st.integers(2, 7)), max_size=8)
    )
    return times, prices, sorted(calls, key=lambda call: call[0])


def oracle(times, prices, calls):
    """Return (launched, ended, cause) of every launch, found second by second; refused launches have no entry."""
    price_of = dict(zip(times, prices, strict=True))
    price, held = None, []
    for second in range(62):
        changed = second in price_of
        price = price_of.get(second, price)
        for one in held:
            if one[2] is None and changed and price > one[3]:
                one[1:3] = [second, EndCause.EVICTED]
        for at, verb, number in calls:
            if at != second:
                continue
            if verb == "launch" and price is not None and price <= number:
                held.append([second, None, None, number])
            elif verb == "end":
                living = [one for one in held if one[2] is None]
                if living:
                    living[0][1:3] = [second, EndCause.USER]
    return [tuple(one[:3]) for one in held]


@given(stories())
def test_every_fate_is_that_of_a_naive_market(story):
    times, prices, calls = story
    here = Market("c4.large", "z")
    traces = TraceSet({here: Trace(np.array(times), np.array(prices) * 10_000)})
    clock = ManualClock(0)
    sim = SimSpotMarket(traces, sold, clock.now_s)
    for number, (at, verb, size) in enumerate(calls):
        clock.at_s = at + 0.5
        if verb == "launch":
            try:
                sim.launch(request(f"t{number}", market=here, bid=f"{size / 100:.2f}"))
            except LaunchRefused:
                continue
        else:
            sim.terminate([fact.instance_id for fact in sim.describe() if fact.alive][:1])
    clock.at_s = 61
    assert [(f.launched_at_s, f.ended_at_s, f.end_cause) for f in sim.log()] == oracle(times, prices, calls)


# -- a market that was ended and goes on ------------------------------------------------------------------------------

CALLS = st.lists(
    st.tuples(st.integers(0, 700), st.sampled_from(["launch", "launch", "terminate", "end"]), st.integers(0, 3)),
    max_size=12,
)


@given(CALLS, st.sampled_from([0, 40]))
def test_a_market_that_was_ended_goes_on_as_if_it_had_not_been(calls, boot_s):
    """The record is the same after any purchases and terminations, however often the market was restarted."""
    path = Path(tempfile.mkdtemp()) / "market.json"
    clock = ManualClock(T0 + 10)
    whole, broken = market(clock, boot_s=boot_s, seed="s"), market(clock, boot_s=boot_s, seed="s")
    for number, (later_s, call, which) in enumerate(calls):
        clock.at_s += later_s
        if call == "end":
            broken.advance()
            write_state(path, broken.state("digest"))
            broken = market(clock, boot_s=boot_s, seed="another")
            broken.restore(read_state(path))
            continue
        answers = []
        for sim in (whole, broken):
            try:
                if call == "launch":
                    order = request(f"t{which}", market=(A, B)[which % 2], bid=("0.03", "0.04", None, "0.2")[which])
                    answers.append(sim.launch(order))
                else:
                    answers.append(sim.terminate([fact.instance_id for fact in sim.log()][which : which + 1]))
            except (LaunchRefused, TokenMismatch) as error:
                answers.append(error.code)
        assert answers[0] == answers[1], number
    clock.at_s += 5000
    assert whole.log() == broken.log()
    shutil.rmtree(path.parent)


def test_what_was_alive_boots_again_and_what_has_ended_does_not():
    clock = ManualClock(T0 + 10)
    before = market(clock, seed="s")
    kept, gone = (before.launch(request(name, bid=None))[0].instance_id for name in "tu")
    before.terminate([gone])
    after = market(clock)
    after.restore(before.state("digest"))
    assert [(change.kind, change.instance_id) for change in after.advance()] == [(ChangeKind.RUNNING, kept)]


def test_a_market_restarts_with_marks_stops_and_launches_that_die(tmp_path):
    clock = ManualClock(T0 + 10)
    before = market(clock, seed="s", boot_s=30)
    (marked,) = before.launch(request("marked", bid="0.05"))
    (stopped,) = before.launch(request("stopped", bid=None))
    before.add_fault(Fault(FaultKind.DIE, code="Client.VolumeLimitExceeded", delay_s=50, times=1))
    before.launch(request("dies", bid=None), LaunchOptions(other="digest"))
    before.add_fault(Fault(FaultKind.MARK, instance_id=marked.instance_id, notice_s=60))
    before.add_fault(Fault(FaultKind.STOP, instance_id=stopped.instance_id))
    write_state(tmp_path / "market.json", before.state("digest"))
    after = market(clock, boot_s=30)
    after.restore(read_state(tmp_path / "market.json"))
    assert after.log()[:2] == before.log()[:2]
    assert after.log()[2].end_reason == "Client.VolumeLimitExceeded", "it never ran, and never will"
    with pytest.raises(TokenMismatch):
        after.launch(request("dies", bid=None))
    clock.at_s = T0 + 70
    assert after.log()[0].end_cause is EndCause.EVICTED
    assert after.log()[1] == before.log()[1]


@pytest.mark.parametrize("text", ["", "{}", '{"schema": 99}', "[1]"])
def test_a_file_that_is_no_state_of_a_market_is_named(tmp_path, text):
    path = tmp_path / "market.json"
    assert read_state(path) is None
    path.write_text(text)
    with pytest.raises(InputError, match=r"market\.json: is not a state of a market .*; name another directory"):
        read_state(path)


def test_a_market_of_scarce_capacity_continues_too_and_is_distinguished_from_others():
    scarce = TraceSet({A: capacity_trace([1, 1, 0, 1], 300, T0)})
    clock = ManualClock(T0 + 10)
    before = market(clock, seed="s", capacity=scarce)
    before.launch(request("t"))
    after = market(clock, capacity=scarce)
    after.restore(before.state("digest"))
    clock.at_s = T0 + 1000
    assert before.log() == after.log()
    assert [(fact.ended_at_s, fact.end_cause) for fact in after.log()] == [(T0 + 600, EndCause.EVICTED)]
    assert traces_digest(TraceSet({})) == ""
    others = (capacity_trace([1, 0, 0, 1], 300, T0), capacity_trace([1, 1, 0, 1], 300, T0 + 1))
    assert len({traces_digest(TraceSet({A: trace})) for trace in (scarce[A], *others)}) == 3


def test_some_drops_are_foretold_to_all_machines_of_their_market_and_all_are_by_the_notice():
    ahead = set()
    for drop_s in range(1800, 3600, 120):
        clock = ManualClock(T0 + 600)
        sim = market(clock, capacity=TraceSet({B: capacity_trace([3, 1], drop_s, T0)}))
        bought = [fact.instance_id for fact in sim.launch(request("t", market=B, bid="0.04", count=2))]
        for clock.at_s in range(T0 + 600, T0 + drop_s, 20):
            sim.advance()
        found = {sim.rebalance_at_s(name) for name in bought}
        assert len(found) == 1
        ahead.add(T0 + drop_s - found.pop())
        assert [sim.marked_at_s(name) for name in bought].count(None) == 1
    assert ahead == {120, 720}


@pytest.mark.parametrize("options", [{"notice": NoticeMode.NONE}, {"capacity": {B: capacity_trace([3, 2], 1800, T0)}}])
def test_a_drop_that_is_not_announced_or_takes_nothing_is_not_foretold(options):
    clock = ManualClock(T0 + 600)
    capacity = {B: capacity_trace([3, 1], 1800, T0)}
    sim = market(clock, **{"capacity": capacity, **options})
    bought = sim.launch(request("t", market=B, bid="0.04", count=2))
    for clock.at_s in range(T0 + 600, T0 + 1800, 20):
        sim.advance()
    assert {sim.rebalance_at_s(fact.instance_id) for fact in bought} == {None}
