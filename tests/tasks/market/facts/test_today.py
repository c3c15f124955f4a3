"""A job by today's rules: no bid, as many machines as there are, and what is learnt of the market."""

from dataclasses import replace
from pathlib import Path

import pytest

from proteus_spot.bidding.engine.orders import Acquire, Wait
from proteus_spot.bidding.evictions.fit_capacity import capacity_trace
from proteus_spot.bidding.facts.records import PlacementScore
from proteus_spot.bidding.market.model import EndCause
from proteus_spot.infra.clock import ScaledClock
from proteus_spot.infra.local_market.environment import clock_file
from proteus_spot.infra.simulated_ec2.faults import Fault, FaultKind
from proteus_spot.tasks.market.decisions import decide
from proteus_spot.tasks.market.engine_journal import JobEngine
from proteus_spot.tasks.market.facts import observing
from proteus_spot.tasks.market.facts.observing import known_to_decide_on, observe_scores, quotas_to_decide_on
from proteus_spot.tasks.market.facts.showing import list_markets
from tests.support.task_runtime import BEGIN_S, MARKET, ON_DEMAND, OTHER, TaskRuntime, plain, spec

TODAY = {"rules": "today", "policy": "best", "billing": "per-second-first-hour-free", "allocation_vcpus": None}
#: The codes of Service Quotas for the standard families, spot and on demand, and for spot GPU machines.
SPOT_QUOTA, ON_DEMAND_QUOTA, GPU_QUOTA = "L-34B43A08", "L-1216C47A", "L-3819A6DF"


def todays(**more):
    return spec(**{**TODAY, "max_vcpus": 8, **more})


def has(here: TaskRuntime, *counts: int) -> None:
    """Have the market have so many machines, ten minutes each."""
    here.market.capacity.traces = {MARKET: capacity_trace([*counts, 99], 600, BEGIN_S)}


def spot(here: TaskRuntime):
    return [fact for fact in here.market.log() if fact.bid_micros is not None]


def test_without_an_eviction_model_it_starts_from_a_prior_and_learns(here: TaskRuntime) -> None:
    here.begin(todays())
    opened = JobEngine("job").cached().holdings.opened
    assert (opened.learns, opened.evictions.bids_decide) == (True, False)
    before = known_to_decide_on(JobEngine("job"), {})[MARKET].survival
    here.tick(todays())
    here.clock.at_s += 900
    here.market.add_fault(Fault(FaultKind.KILL, market=MARKET))
    here.tick(todays())
    after = known_to_decide_on(JobEngine("job"), {})[MARKET].survival
    assert after.losses == 4
    assert after.lives(100, 700) < before.lives(100, 700)


def test_it_buys_what_is_there_without_a_bid_and_leaves_the_market_alone_for_a_while(here: TaskRuntime) -> None:
    here.begin(todays())
    has(here, 1, 1, 3)
    (order,) = here.tick(todays())
    assert isinstance(order, Acquire)
    assert order.count == 4
    (machine,) = spot(here)
    assert (machine.bid_micros, here.market.request_of(machine.instance_id).no_limit) == (ON_DEMAND, True)
    here.clock.at_s += 120
    (waits,) = here.tick(todays())
    assert isinstance(waits, Wait)
    here.clock.at_s += 1200
    here.tick(todays())
    assert len(spot(here)) == 3


def test_a_bid_below_the_on_demand_price_is_sent_as_it_is(here: TaskRuntime) -> None:
    job = todays(policy="fixed-delta:0.01")
    here.begin(job)
    here.tick(job)
    request = here.market.request_of(spot(here)[0].instance_id)
    assert (request.no_limit, request.at_least, request.bid_micros) == (False, 1, 30_000)


def test_by_the_rules_of_2016_it_is_all_or_none(here: TaskRuntime) -> None:
    job = spec()
    here.begin(job)
    has(here, 1)
    here.tick(job)
    assert spot(here) == []


def test_a_refusal_says_its_code_in_the_next_decision(here: TaskRuntime) -> None:
    here.begin(todays())
    has(here, 0, 0)
    here.tick(todays())
    here.clock.at_s += 120
    (waits,) = here.tick(todays())
    assert isinstance(waits, Wait)
    assert "last answers: InsufficientInstanceCapacity in 1 of 1 markets" in waits.decision.reason


def test_a_purchase_says_what_is_known_of_its_market(here: TaskRuntime) -> None:
    here.begin(todays())
    (order,) = here.tick(todays())
    assert f"{MARKET}: some are granted in 70% of requests" in order.decision.reason
    assert "placement score 10" in order.decision.reason


def test_several_machines_are_lost_at_once_and_counted(here: TaskRuntime) -> None:
    here.begin(todays())
    has(here, 4, 1)
    here.tick(todays())
    here.clock.at_s += 601
    here.tick(todays())
    assert [fact.end_cause for fact in spot(here)].count(EndCause.EVICTED) == 3
    assert known_to_decide_on(JobEngine("job"), {})[MARKET].bursts.share == pytest.approx(0.6)


def test_placement_scores_are_asked_for_once_an_hour_whatever_the_answer(here: TaskRuntime, monkeypatch) -> None:
    asked = []
    monkeypatch.setattr(here.market, "placement_scores", lambda types, count: asked.append(types) or {MARKET.zone: 7})
    here.begin(todays())
    for _ in range(3):
        plain(observe_scores)([MARKET, OTHER], 4)
    assert asked == [["c4.large", "m4.large"]]
    assert here.store.markets.scores([MARKET, OTHER], 0) == [PlacementScore(BEGIN_S, MARKET, 7, 4)]


def test_a_decision_between_two_questions_starts_no_task_for_them(here: TaskRuntime, monkeypatch) -> None:
    started = []
    for name in ("observe_scores", "observe_quotas"):
        function = plain(getattr(observing, name))
        monkeypatch.setattr(
            observing, name, lambda *given, name=name, function=function: started.append(name) or function(*given)
        )
    here.begin(todays())
    for _ in range(2):
        known_to_decide_on(JobEngine("job"), {})
        quotas_to_decide_on(JobEngine("job"))
    assert started == ["observe_scores", "observe_quotas"]


def test_a_throttled_question_is_no_fault(here: TaskRuntime) -> None:
    here.market.add_fault(Fault(FaultKind.THROTTLE, operation="scores"))
    assert plain(observe_scores)([MARKET], 4) == 0


def test_what_is_known_is_listed_for_all_jobs_of_a_database(here: TaskRuntime, tmp_path: Path) -> None:
    ScaledClock.create(clock_file(tmp_path), BEGIN_S, 1.0)  # as in the directory of a run
    here.begin(todays())
    has(here, 2, 2)
    here.tick(todays())
    lines, left_out = list_markets([], here.runtime.settings.database_url)
    (record,) = [line.to_record() for line in lines]
    assert left_out == []
    assert (record["market"], record["share_granted"]["value"]) == (str(MARKET), 0.5)
    assert record["price_micros"]["value"] == 20_000
    assert record["on_demand_micros"]["value"] == ON_DEMAND
    assert set(record["lives"]) == {"1h", "6h", "24h"}
    (named,), _ = list_markets(["c5.large/us-east-1f"], here.runtime.settings.database_url)
    assert named.known.share_granted is None


def test_nothing_is_asked_beyond_the_quota_of_spot_machines(here: TaskRuntime) -> None:
    here.market.behaviour = replace(here.market.behaviour, quotas={SPOT_QUOTA: 6})
    here.begin(todays())
    (order,) = here.tick(todays())
    assert order.count == 3
    assert "leaves 6 vCPUs" in order.decision.reason
    here.clock.at_s += 120
    (waits,) = here.tick(todays())
    assert isinstance(waits, Wait)
    assert [intent.state for intent in here.store.purchases.intents("job")].count("refused") == 0


def test_the_quota_of_on_demand_machines_and_of_other_families_says_nothing_of_spot(here: TaskRuntime) -> None:
    here.market.behaviour = replace(here.market.behaviour, quotas={ON_DEMAND_QUOTA: 2, GPU_QUOTA: 0})
    here.begin(todays())
    (order,) = here.tick(todays())
    assert order.count == 4


def test_quotas_are_those_of_all_jobs(here: TaskRuntime) -> None:
    here.market.behaviour = replace(here.market.behaviour, quotas={SPOT_QUOTA: 10})
    for name in ("job", "other"):
        here.begin(todays(job_id=name))
        here.tick(todays(job_id=name))
    assert len(spot(here)) == 5
    here.clock.at_s += 60
    assert quotas_to_decide_on(JobEngine("job"))[SPOT_QUOTA] == 0


def test_a_throttled_purchase_makes_all_jobs_wait(here: TaskRuntime) -> None:
    for name in ("job", "other"):
        here.begin(todays(job_id=name))
    here.market.add_fault(Fault(FaultKind.THROTTLE, operation="launch", times=1))
    here.tick(todays())
    here.tick(todays(job_id="other"))
    assert spot(here) == []
    here.store.claims.release_all()
    here.tick(todays(job_id="other"))
    assert len(spot(here)) == 4


@pytest.mark.parametrize(("url", "rules", "today"), [
    (None, None, True),
    (None, "2016", False),
    ("http://simulated.test", None, False),
    ("http://simulated.test", "today", True),
])  # fmt: skip
def test_a_job_follows_todays_rules_on_aws_unless_it_says_otherwise(
    here: TaskRuntime, url: str | None, rules: str | None, today: bool
) -> None:
    here.use(ec2_endpoint_url=url)
    here.begin(todays(rules=rules))
    assert JobEngine("job").refresh().holdings.opened.learns is today


def test_machines_that_were_lost_count_in_no_quota(here: TaskRuntime) -> None:
    here.market.behaviour = replace(here.market.behaviour, quotas={SPOT_QUOTA: 10})
    here.begin(todays())
    here.tick(todays())
    assert quotas_to_decide_on(JobEngine("job"))[SPOT_QUOTA] == 2
    here.clock.at_s += 60
    here.market.add_fault(Fault(FaultKind.KILL, instance_id=spot(here)[0].instance_id))
    plain(decide)(JobEngine("job"), here.facts(todays()), {}, {})
    assert quotas_to_decide_on(JobEngine("job"))[SPOT_QUOTA] == 4
