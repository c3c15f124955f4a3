"""The world that the tasks of this process touch, and how each touch is wrapped for Prefect."""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from prefect import task
from prefect.cache_policies import NO_CACHE

from bidding.market.spot_market import MarketUnreachable
from infra.runtime import Runtime, open_runtime

P = ParamSpec("P")
R = TypeVar("R")

#: A touch of the market is tried again this often (EC2's client has retried each call already).
MARKET_RETRIES = 2


def current_runtime() -> Runtime:
    """Return the world of this process."""
    return open_runtime()


def _unreachable(_task: Any, _run: Any, state: Any) -> bool:
    """Whether it is of use to try again: only where nobody answered."""
    return isinstance(state.result(raise_on_failure=False), MarketUnreachable)


def runtime_task(name: str, *, market: bool = False) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return the decorator that makes a function a task called `name`.

    Nothing is cached: a remembered "bought" would be a lie after an eviction. Touches of the market are tried again
    where nobody answered; that is harmless, because every purchase has a token.
    """
    if market:
        made = task(
            name=name,
            cache_policy=NO_CACHE,
            persist_result=False,
            retries=MARKET_RETRIES,
            retry_delay_seconds=1,
            retry_condition_fn=_unreachable,
        )
    else:
        made = task(name=name, cache_policy=NO_CACHE, persist_result=False)
    return made
