"""Heads on copies of one state database never send one client token for two requests, and one of them goes on."""

import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from proteus_spot.bidding.market.model import InstanceFact, LaunchRequest
from proteus_spot.infra.errors import TickStopped
from proteus_spot.infra.simulated_ec2.rules.behaviour import HONEST
from proteus_spot.infra.storage.blobs import BlobError
from proteus_spot.tasks.market.engine_journal import JobEngine
from proteus_spot.tasks.market.purchases import fence
from proteus_spot.tasks.market.purchases.reliable_purchases import secure_reliable_tier
from proteus_spot.tasks.market.purchases.sending import PurchaseBlocked
from tests.stateful.test_purchases_property import CARRIED_OUT, TICK_S, Killed, Unreliable
from tests.support.copied_databases import on_a_copy
from tests.support.purchases import opened
from tests.support.task_runtime import TaskRuntime, plain, spec

#: What a tick meets; without the fence it orders, and sends nothing.
MEETS = (*CARRIED_OUT, "unsent", "killed before", "throttled", "no fence")


def away(*_: object) -> None:
    raise BlobError("the bucket is away")


def step(here: TaskRuntime) -> None:
    """One tick of the head that is at work, as a process that may be killed in it."""
    try:
        fence.check_fence("job")
        plain(secure_reliable_tier)(spec(), JobEngine("job"))
        here.tick(spec())
    except (Killed, PurchaseBlocked, TickStopped):
        pass  # the next process goes on


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    before=st.lists(st.sampled_from(MEETS + ("no fence",) * 3), max_size=3),
    steps=st.lists(
        st.tuples(st.booleans(), st.sampled_from(MEETS), st.sampled_from([1, 15, 45, TICK_S])), min_size=4, max_size=12
    ),
    taken=st.booleans(),
)
def test_two_heads_never_send_one_token_for_two_requests_and_one_goes_on(
    before: list[str], steps: list[tuple[bool, str, int]], taken: bool
) -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        here = TaskRuntime(folder, patch, taken_after_s=600 if taken else None)
        stack.callback(here.store.close)
        here.market.behaviour = HONEST
        opened(here)
        sent: dict[str, LaunchRequest] = {}
        honest = here.market.launch

        def meet(what: str) -> None:
            patch.setattr(here.market, "launch", honest)
            unreliable = Unreliable(here, [what])

            def launch(request: LaunchRequest) -> list[InstanceFact]:
                assert sent.setdefault(request.token, request) == request
                return unreliable(request)

            patch.setattr(here.market, "launch", launch)

        heads = [here.runtime]
        for number, (is_other, what, wait_s) in enumerate([*((False, what, 1) for what in before), *steps]):
            if number == len(before):
                heads.append(on_a_copy(here.runtime, folder / "copy.db"))
                stack.callback(heads[-1].store.close)
            here.runtime = heads[-1 if is_other else 0]
            here.store = here.runtime.store
            meet("answered" if what == "no fence" else what)
            with pytest.MonkeyPatch.context() as bucket:
                if what == "no fence":
                    bucket.setattr(fence, "read_fence", away)
                step(here)
            here.clock.at_s += wait_s
        here.runtime = max(
            reversed(heads), key=lambda head: head.store.owner.identity().generation
        )  # the other one stops
        here.store = here.runtime.store
        here.market.behaviour = replace(HONEST, instance_lag_s=(0, 0), request_lag_s=(0, 0))
        meet("answered")
        for _ in range(12):
            step(here)
            here.clock.at_s += TICK_S
        event(f"generation {here.store.owner.identity().generation[:6]}")
        in_book = {name for record in here.store.purchases.allocations("job", alive=True) for name in record.living_ids}
        assert in_book == {fact.instance_id for fact in here.market.log() if fact.alive}
        assert in_book
