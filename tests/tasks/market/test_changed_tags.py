"""Machines whose tags are missing or changed: they are known by their ids, and by the client token of their order."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from proteus_spot.bidding.market.model import InstanceFact, LaunchRequest, Tier
from proteus_spot.bidding.market.spot_market import MarketUnreachable
from proteus_spot.tasks.market.bookkeeping import book_ledger
from proteus_spot.tasks.market.engine_journal import JobEngine
from proteus_spot.tasks.market.job_opening import close_job
from proteus_spot.tasks.market.purchases.reliable_purchases import release_reliable_tier
from proteus_spot.tasks.market.reaping import orphans
from tests.support.market_bill import bill_of, by_hour
from tests.support.purchases import TICK_S
from tests.support.task_runtime import TaskRuntime, plain, spec


def retagged(
    here: TaskRuntime, patch: pytest.MonkeyPatch, tags: Mapping[str, str], is_meant: Callable[[InstanceFact], bool]
) -> None:
    """Have the market answer with `tags` for the machines that are meant."""
    describe, launch = here.market.describe, here.market.launch

    def shown(fact: InstanceFact) -> InstanceFact:
        return replace(fact, tags=tags) if is_meant(fact) else fact

    def describing(wanted: Any = (), instance_ids: Any = (), tokens: Any = ()) -> list[InstanceFact]:
        return [
            fact
            for fact in map(shown, describe())
            if fact.instance_id in instance_ids
            or fact.token in tokens
            or all(fact.tags.get(key) == value for key, value in wanted)
        ]

    patch.setattr(here.market, "describe", describing)
    patch.setattr(here.market, "launch", lambda request: [shown(fact) for fact in launch(request)])


def book(here: TaskRuntime) -> dict[str, tuple[Tier, int]]:
    return {
        r.order_id: (r.allocation.tier, r.living_count) for r in here.store.purchases.allocations("job", alive=True)
    }


def run(here: TaskRuntime, ticks: int) -> None:
    for _ in range(ticks):
        here.tick(spec())
        here.clock.at_s += TICK_S
        assert plain(orphans)() == {}


def ends_with_the_bill(here: TaskRuntime) -> None:
    run(here, 40)
    assert len(here.market.log()) == 3, "nothing was bought twice"
    job_engine = JobEngine("job")
    plain(close_job)(job_engine, {})
    plain(release_reliable_tier)(job_engine)
    here.market.terminate([fact.instance_id for fact in here.market.log()])
    run(here, 1)
    plain(book_ledger)("job")
    assert here.store.purchases.spent("job") == sum(bill_of(here.market, by_hour, by_hour).values())


@pytest.mark.parametrize("tags", [{}, {"proteus:order": "another", "proteus:job": "another", "proteus:tier": "none"}])
@pytest.mark.parametrize("bought", ["spot", "on demand"])
def test_machines_that_were_sold_without_their_tags_are_held_under_their_order(
    here: TaskRuntime, monkeypatch: pytest.MonkeyPatch, bought: str, tags: dict[str, str]
) -> None:
    retagged(here, monkeypatch, tags, lambda fact: (fact.bid_micros is None) == (bought == "on demand"))
    here.begin(spec())
    run(here, 2)
    assert book(here) == {"job-reliable-0": (Tier.RELIABLE, 1), "job-buy-0": (Tier.TRANSIENT, 2)}
    ends_with_the_bill(here)


def test_machines_of_a_lost_answer_that_have_no_tags_are_found_by_their_client_token(
    here: TaskRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.begin(spec())
    retagged(here, monkeypatch, {}, lambda fact: fact.bid_micros is not None)
    launch = here.market.launch

    def lost(request: LaunchRequest) -> list[InstanceFact]:
        launch(request)
        raise MarketUnreachable("ReadTimeout", "lost")

    with monkeypatch.context() as patch:
        patch.setattr(here.market, "launch", lost)
        here.tick(spec())
        here.clock.at_s += TICK_S
        here.tick(spec())
    assert book(here) == {"job-reliable-0": (Tier.RELIABLE, 1), "job-buy-0": (Tier.TRANSIENT, 2)}
    ends_with_the_bill(here)


def test_machines_whose_tags_are_removed_later_are_still_held(
    here: TaskRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.begin(spec())
    run(here, 3)
    retagged(here, monkeypatch, {}, lambda fact: True)
    ends_with_the_bill(here)


def test_a_machine_that_lost_the_tag_of_its_job_is_no_orphan(
    here: TaskRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.begin(spec())
    run(here, 1)
    retagged(here, monkeypatch, {"proteus:owner": here.runtime.owner}, lambda fact: True)
    run(here, 5)
    assert len([fact for fact in here.market.log() if fact.alive]) == 3
