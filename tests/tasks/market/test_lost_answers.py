"""Purchases whose answer is lost: repeated or looked for, bought once, never forgotten."""

from dataclasses import replace
from typing import Any

import pytest

from proteus_spot.bidding.engine.reconcile import LISTED_S
from proteus_spot.bidding.market.failures import SETTLES_S
from proteus_spot.bidding.market.model import InstanceFact, LaunchRequest, Market, Tier
from proteus_spot.bidding.market.spot_market import LaunchRefused, MarketUnreachable, TokenMismatch
from proteus_spot.infra.simulated_ec2.rules.behaviour import HONEST
from proteus_spot.infra.state.records import IntentState
from proteus_spot.tasks.market.bookkeeping import book_ledger
from proteus_spot.tasks.market.engine_journal import JobEngine
from proteus_spot.tasks.market.job_opening import close_job
from proteus_spot.tasks.market.purchases.reliable_purchases import release_reliable_tier
from proteus_spot.tasks.market.purchases.requests import launch_request
from proteus_spot.tasks.market.purchases.sending import abandon_orders
from proteus_spot.tasks.market.reaping import orphans
from tests.support.market_bill import bill_of, by_hour
from tests.support.purchases import TICK_S, alive, empty, opened, patched, refusing, secure, selling, states
from tests.support.task_runtime import BEGIN_S, MARKET, TaskRuntime, plain, spec


def test_a_purchase_whose_answer_is_lost_is_repeated_byte_for_byte_and_bought_once(here: TaskRuntime) -> None:
    opened(here)
    sent: list[LaunchRequest] = []
    launch = here.market.launch

    def lossy(request: LaunchRequest) -> list[InstanceFact]:
        sent.append(request)
        facts = launch(request)
        if len(sent) == 1:
            raise MarketUnreachable("ReadTimeout", "the answer is lost")
        return facts

    with patched(here, launch=lossy, describe=empty):  # EC2's reads lag its writes
        assert "ReadTimeout" in str(secure(here))
        assert states(here) == {"job-reliable-0": "planned"}
        assert not here.store.jobs.job("job").state.terminal
        here.clock.at_s += 60
        # another process, under other settings, after an upgrade
        other = here.runtime.settings.model_copy(update={"node_python": "/opt/python", "notice_s": 100})
        here.runtime = replace(here.runtime, settings=other)
        assert secure(here) is None
    assert sent[0] == sent[1]
    assert states(here) == {"job-reliable-0": "done"}
    assert [record.instance_ids for record in here.store.purchases.allocations("job")] == [
        (alive(here)[0].instance_id,)
    ]
    for _ in range(10):
        here.clock.at_s += TICK_S
        here.tick(spec())
        assert plain(orphans)() == {}
    assert sum(fact.bid_micros is None for fact in here.market.log()) == 1


@pytest.mark.parametrize(("kernels", "exported"), [("native", False), ("avx2", True)])
def test_machines_are_told_which_kernels_they_take(here: TaskRuntime, kernels: str, exported: bool) -> None:
    opened(here)
    settings = here.runtime.settings.model_copy(update={"cpu_kernels": kernels})
    here.runtime = replace(here.runtime, settings=settings)
    order = launch_request(spec().job_id, "job-reliable-0", MARKET, 1, Tier.RELIABLE, token="t")
    assert ("export PROTEUS_CPU_KERNELS=avx2" in order.user_data) is exported


def test_a_process_that_dies_between_sending_and_recording_leaves_an_order_that_the_next_one_finds(
    here: TaskRuntime,
) -> None:
    opened(here)

    class Killed(BaseException):
        pass

    with patched(here, launch=selling(here, Killed())), pytest.raises(Killed):
        secure(here)
    (intent,) = here.store.purchases.intents("job")
    assert intent.doubtful_since_s == BEGIN_S
    with patched(here, launch=refusing(AssertionError("it is found, not sent again"))):
        assert secure(here) is None
    assert len(here.market.log()) == 1


@pytest.mark.parametrize("code", ["IdempotentParameterMismatch", "IdempotentInstanceTerminated"])
def test_a_token_that_was_used_is_no_refusal_the_machines_are_looked_for(here: TaskRuntime, code: str) -> None:
    opened(here)
    launch, describe = here.market.launch, here.market.describe

    def used(request: LaunchRequest) -> list[InstanceFact]:
        if not here.market.log():
            launch(request)
        raise TokenMismatch(code, "the token was used")

    with patched(here, launch=used, describe=empty):
        for _ in range(3):
            assert code in str(secure(here))
            here.clock.at_s += 30
        assert states(here) == {"job-reliable-0": "planned"}
    with patched(here, launch=used, describe=describe):
        assert secure(here) is None, "it is listed now"
    assert len(here.market.log()) == 1


@pytest.mark.parametrize(
    ("code", "state"), [("IdempotentParameterMismatch", "abandoned"), ("IdempotentInstanceTerminated", "done")]
)
def test_an_order_of_which_nothing_is_listed_for_long_is_answered_and_a_fresh_one_follows(
    here: TaskRuntime, code: str, state: str
) -> None:
    """Abandoned; or done, and at its end, where the market says that it bought machines and all have ended."""
    opened(here)
    with patched(here, launch=refusing(TokenMismatch(code, "the token was used"))):
        began_s = here.clock.at_s
        while states(here).get("job-reliable-0") != state:
            assert here.clock.at_s <= began_s + SETTLES_S
            secure(here)
            here.clock.at_s += 20
        assert here.clock.at_s >= began_s + SETTLES_S
    assert (here.store.purchases.intent("job-reliable-0").request is None) == (state == "abandoned")
    assert [record.alive for record in here.store.purchases.allocations("job")] == ([False] if state == "done" else [])
    here.clock.at_s += TICK_S if state == "abandoned" else 3600  # machines that died are not replaced at once
    assert secure(here) is None
    assert states(here) == {"job-reliable-0": state, "job-reliable-0-again-1": "done"}
    tokens = [intent.token for intent in here.store.purchases.intents("job")]
    assert len(set(tokens)) == 2


@pytest.mark.parametrize("error", [MarketUnreachable("InternalError", "5xx"), MarketUnreachable("Throttling", "slow")])
def test_server_errors_and_throttling_leave_the_order_open_however_long_they_last(
    here: TaskRuntime, error: MarketUnreachable
) -> None:
    opened(here)
    with patched(here, launch=refusing(error)):
        for _ in range(30):
            assert error.code in str(secure(here))
            here.clock.at_s += TICK_S
    assert states(here) == {"job-reliable-0": "planned"}
    assert secure(here) is None
    assert len(here.market.log()) == 1


def test_a_refusal_after_a_lost_answer_is_not_believed_before_the_reads_have_caught_up(here: TaskRuntime) -> None:
    here.begin(spec())
    launch, describe = here.market.launch, here.market.describe
    count = 0

    def lossy(request: LaunchRequest) -> list[InstanceFact]:
        nonlocal count
        count += 1
        if count > 1:
            raise LaunchRefused("InsufficientInstanceCapacity", "none left")
        launch(request)
        raise MarketUnreachable("ReadTimeout", "lost")

    def lagging(*names: Any, **more: Any) -> list[InstanceFact]:
        return [fact for fact in describe(*names, **more) if fact.bid_micros is None]

    with patched(here, launch=lossy, describe=lagging):
        here.tick(spec())
        here.clock.at_s += TICK_S
        here.tick(spec())
    assert states(here)["job-buy-0"] == "planned"
    here.clock.at_s += TICK_S
    here.tick(spec())
    assert states(here) == {"job-reliable-0": "done", "job-buy-0": "done"}
    assert len(alive(here)) == 3
    assert plain(orphans)() == {}


def test_a_young_machine_whose_spot_request_is_not_listed_yet_stops_no_tick_and_is_adopted_later(
    here: TaskRuntime,
) -> None:
    here.market.behaviour = replace(HONEST, instance_lag_s=(0, 0), request_lag_s=(90, 90))
    here.begin(spec())
    with patched(here, launch=selling(here, MarketUnreachable("ReadTimeout", "lost"))):
        here.tick(spec())
        here.clock.at_s += 30
        assert [fact.complete for fact in here.facts(spec())] == [True, False, False]
        here.tick(spec())
    assert states(here)["job-buy-0"] == "planned", "at what bid it was bought is not known"
    here.clock.at_s += TICK_S
    here.tick(spec())
    record = next(r for r in here.store.purchases.allocations("job") if r.order_id == "job-buy-0")
    assert record.allocation.bid_micros is not None
    assert len(here.market.log()) == 3


def test_an_error_on_the_way_to_a_machine_delays_no_other_purchase_when_it_is_lost(here: TaskRuntime) -> None:
    opened(here)
    with patched(here, launch=refusing(MarketUnreachable("Throttling", "slow"))):
        secure(here)
    here.clock.at_s += 20
    assert secure(here) is None
    here.clock.at_s += 60
    here.market.terminate([alive(here)[0].instance_id])
    here.tick(spec())
    assert secure(here) is None
    assert [fact.order_id for fact in alive(here) if fact.bid_micros is None] == ["job-reliable-0-again-1"]


def test_two_runs_within_a_second_buy_one_machine_and_agree(here: TaskRuntime) -> None:
    opened(here)
    launch, describe = here.market.launch, here.market.describe
    calls = []

    def launching(request: LaunchRequest) -> list[InstanceFact]:
        facts = launch(request)  # EC2 has sold it; its answer takes a moment, in which the other run comes here
        calls.append(request)
        if len(calls) == 1:
            here.clock.at_s += 1
            with patched(here, describe=empty):
                assert secure(here) is None
        return facts

    with patched(here, launch=launching, describe=describe):
        assert secure(here) is None
    assert calls[0] == calls[1]
    assert [(r.order_id, r.alive) for r in here.store.purchases.allocations("job")] == [("job-reliable-0", True)]
    assert not here.store.jobs.job("job").state.terminal
    here.clock.at_s += TICK_S
    assert [type(order).__name__ for order in here.tick(spec())] == ["Acquire"]
    assert not JobEngine("job").refresh().holdings.closed
    assert len(here.market.log()) == 3


def test_an_order_in_doubt_of_a_job_that_ends_is_found_or_abandoned_and_never_forgotten(here: TaskRuntime) -> None:
    here.begin(spec())
    describe, lossy = here.market.describe, selling(here, MarketUnreachable("ReadTimeout", "lost"))

    def lagging(*names: Any, **more: Any) -> list[InstanceFact]:
        return [fact for fact in describe(*names, **more) if fact.bid_micros is None]

    with patched(here, launch=lossy, describe=lagging):
        here.tick(spec())
        plain(close_job)(JobEngine("job"), {})
        plain(release_reliable_tier)(JobEngine("job"))
        here.clock.at_s += 60
        here.tick(spec())
        abandon_orders(JobEngine("job"))
        assert states(here)["job-buy-0"] == "planned"
    for _ in range(60):
        here.clock.at_s += TICK_S
        here.tick(spec())
        abandon_orders(JobEngine("job"))
    assert states(here)["job-buy-0"] == "done"
    assert alive(here) == []
    assert here.store.purchases.allocations("job", alive=True) == []


def test_an_order_of_an_ended_job_of_which_nothing_lives_is_abandoned(here: TaskRuntime) -> None:
    opened(here)
    with patched(here, launch=refusing(MarketUnreachable("Throttling", "slow"))):
        secure(here)
    plain(close_job)(JobEngine("job"), None, "it broke")
    abandon_orders(JobEngine("job"))
    assert states(here) == {"job-reliable-0": "planned"}
    here.clock.at_s += SETTLES_S
    abandon_orders(JobEngine("job"))
    assert states(here) == {"job-reliable-0": "abandoned"}


def test_an_order_in_doubt_that_nobody_looked_for_while_the_market_remembered_it_is_booked(here: TaskRuntime) -> None:
    here.market.behaviour = HONEST
    opened(here)
    with patched(here, launch=selling(here, MarketUnreachable("ReadTimeout", "lost"))):
        secure(here)
    plain(close_job)(JobEngine("job"), None, "it broke")
    here.clock.at_s += SETTLES_S
    here.market.terminate([fact.instance_id for fact in here.market.log()])
    here.clock.at_s += LISTED_S + 60
    here.tick(spec())
    abandon_orders(JobEngine("job"))
    assert states(here) == {"job-reliable-0": "done"}
    assert here.store.purchases.allocations("job", alive=True) == []
    plain(book_ledger)("job")
    assert here.store.purchases.spent("job") == sum(bill_of(here.market, by_hour, by_hour).values()) > 0


def test_machines_that_are_found_of_a_refused_order_correct_it(here: TaskRuntime) -> None:
    here.begin(spec())
    wrong = selling(here, LaunchRefused("InsufficientInstanceCapacity", "and yet it sold them"))
    with patched(here, launch=wrong):
        here.tick(spec())
    assert states(here)["job-buy-0"] == "refused"
    here.clock.at_s += TICK_S
    here.tick(spec())
    assert here.store.purchases.intent("job-buy-0").state is IntentState.DONE
    assert Market.parse(here.store.purchases.intent("job-buy-0").params["market"]) == MARKET


def test_a_wanted_order_stays_open_when_the_others_are_abandoned(here: TaskRuntime) -> None:
    opened(here)
    for name in ("one", "two"):
        params = {"market": str(MARKET), "count": 1, "bid_micros": 40_000}
        here.store.purchases.plan(name, "job", "acquire", name, params, here.clock.at_s)
    abandon_orders(JobEngine("job"), "not needed", ["two"])
    assert states(here) == {"one": "abandoned", "two": "planned"}
