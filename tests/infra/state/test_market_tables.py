"""The facts of markets: own requests and machines of all jobs, and what others say."""

from proteus_spot.bidding.evictions.fit_capacity import Band
from proteus_spot.bidding.facts.rates import NodeWork, TypeWork
from proteus_spot.bidding.facts.records import AdvisorBand, Life, PlacementScore, Rebalance, RequestAnswer, Source
from proteus_spot.bidding.market.model import Allocation, EndCause, Market
from proteus_spot.infra.state.records import IntentState
from proteus_spot.infra.state.store import Store

A, B = Market("c4.large", "us-east-1a"), Market("c4.large", "us-east-1b")
ASKED = {"market": str(A), "count": 4, "bid_micros": 100_000}


def ordered(store: Store, name: str, job_id: str = "job-1", **params: object) -> None:
    store.purchases.plan(name, job_id, "acquire", f"token-{name}", ASKED | params, 900.0)


def bought(store: Store, name: str, count: int, job_id: str = "job-1") -> None:
    ordered(store, name, job_id)
    ids = [f"{name}-{number}" for number in range(count)]
    store.purchases.record_allocation(job_id, name, Allocation(name, A, count, 1000, bid_micros=100_000), ids)
    store.purchases.settle(name, IntentState.DONE, {"instances": ids}, 1000.0)


def test_answers_are_the_orders_of_all_jobs_with_what_was_granted(store: Store) -> None:
    store.jobs.create_job("job-2", {}, 1.0)
    bought(store, "some", 3)
    ordered(store, "none", "job-2")
    store.purchases.settle("none", IntentState.REFUSED, {"code": "InsufficientInstanceCapacity", "message": ""}, 1100.0)
    ordered(store, "given-up")
    store.purchases.settle("given-up", IntentState.ABANDONED, {"code": "Abandoned", "message": ""}, 1100.0)
    ordered(store, "on-demand", bid_micros=None)
    store.purchases.settle("on-demand", IntentState.REFUSED, {"code": "VcpuLimitExceeded", "message": ""}, 1100.0)
    ordered(store, "open")
    assert store.markets.answers([A, B], 0) == [
        RequestAnswer(1000, A, 4, 3),
        RequestAnswer(1100, A, 4, 0, "InsufficientInstanceCapacity"),
    ]
    assert store.markets.answers([A], 1001) == [RequestAnswer(1100, A, 4, 0, "InsufficientInstanceCapacity")]
    assert store.markets.answers([B], 0) == []


def test_lives_are_the_spot_machines_of_all_jobs_and_why_they_ended(store: Store) -> None:
    store.jobs.create_job("job-2", {}, 1.0)
    bought(store, "first", 3)
    bought(store, "second", 1, "job-2")
    causes = (EndCause.EVICTED, EndCause.USER, EndCause.FAILED)
    ends = {f"first-{number}": (1500 + number, cause) for number, cause in enumerate(causes)}
    store.purchases.record_instance_ends("first", ends)
    store.purchases.record_allocation("job-1", "held", Allocation("held", A, 2, 1000), ["r-1", "r-2"])
    assert store.markets.lives([A, B], 0, 2000) == [
        Life(A, 1000, 1500, taken=True, instance_id="first-0"),
        Life(A, 1000, 1501, taken=False, instance_id="first-1"),
        Life(A, 1000, 2000, taken=False, instance_id="second-0"),
    ]
    assert store.markets.lives([B], 0, 2000) == []


def test_what_others_say_is_listed_oldest_first(store: Store) -> None:
    facts = [PlacementScore(10, A, 3, 4), PlacementScore(20, A, 7, 4)]
    store.markets.record_facts(reversed(facts))
    assert store.markets.scores([A, B], 0) == facts
    assert store.markets.scores([A], 11) == facts[1:]
    assert store.markets.scores([B], 0) == []
    store.markets.forget_facts(20)
    assert store.markets.scores([A], 0) == facts[1:]


def test_the_newest_quotas_are_those_of_the_account(store: Store) -> None:
    store.markets.record_quotas({"L-1": 8, "L-2": 4}, 10)
    store.markets.record_quotas({"L-1": 16}, 20)
    assert store.markets.quotas() == {"L-1": 16}


def test_of_a_band_the_newest_counts(store: Store) -> None:
    old, new = AdvisorBand(10, A, Band(0.0, 0.05)), AdvisorBand(20, A, Band(0.2, None))
    store.markets.record_facts([old, AdvisorBand(10, B, Band(0.05, 0.1)), new])
    assert store.markets.bands([A]) == [new]


def test_answers_and_lives_of_traces_stand_beside_the_own_ones(store: Store) -> None:
    bought(store, "own", 2)
    store.markets.record_facts(
        [RequestAnswer(500, B, 16, 5, "", Source.TRACES), Life(B, 100, 700, True, Source.TRACES)]
    )
    assert [answer.source for answer in store.markets.answers([A, B], 0)] == [Source.TRACES, Source.OWN]
    assert [life.source for life in store.markets.lives([A, B], 0, 2000)] == [Source.TRACES, Source.OWN, Source.OWN]


def test_of_the_recommendations_of_a_machine_the_first_is_kept_whoever_says_it(store: Store) -> None:
    first, other = Rebalance(100, A, "i-1"), Rebalance(150, B, "i-2")
    store.markets.record_rebalances([Rebalance(120, A, "i-1"), first, other])
    store.markets.record_rebalances([Rebalance(90, A, "i-1", Source.OWN)])
    assert store.markets.rebalances([A, B], 0) == [first, other]
    assert store.markets.rebalances([A], 101) == []
    assert store.markets.lives([A, B], 0, 2000) == []


def test_the_work_of_nodes_is_kept_by_job_and_type_and_of_each_node_the_newest(store: Store) -> None:
    def work(at_s: int, job_id: str = "job-1", **nodes: NodeWork) -> TypeWork:
        return TypeWork(at_s, job_id, "mlr", "vcpu", "c4.large", nodes)

    first = NodeWork(3, 30.0, 1.5)
    for each in (work(10, a=first), work(20, a=NodeWork(5, 50.0, 2.5), b=first), work(15, "job-2", c=first)):
        store.markets.record_work(each)
    store.markets.record_work(work(30, b=NodeWork(9, 90.0, 4.5)))
    both = work(30, a=NodeWork(5, 50.0, 2.5), b=NodeWork(9, 90.0, 4.5))
    assert sorted(store.markets.works(0), key=lambda each: each.job_id) == [both, work(15, "job-2", c=first)]
    assert store.markets.works(16) == [both]
    store.markets.forget_facts(16)
    assert store.markets.works(0) == [both]
