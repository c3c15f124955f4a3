"""The runtime (set of adapters) of this process, and the decorator that makes a function a Prefect task."""

import signal
from collections.abc import Callable
from functools import cached_property, update_wrapper, wraps
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast

from proteus_spot.bidding.market.spot_market import MarketUnreachable
from proteus_spot.infra.runtime import Runtime, open_runtime
from proteus_spot.infra.settings import load_settings

if TYPE_CHECKING:
    from prefect import Task

P = ParamSpec("P")
R = TypeVar("R")

#: Number of retries of a task that calls the market (EC2's client has retried each call already).
MARKET_RETRIES = 2
#: Name of the state of a task that ended because its flow run was told to end.
_TOLD_TO_END = "ToldToEnd"


def current_runtime() -> Runtime:
    """Return the runtime of this process."""
    return open_runtime()


def _unreachable(_task: Any, _run: Any, state: Any) -> bool:
    # A retry is of use only if the market did not answer.
    return isinstance(state.result(raise_on_failure=False), MarketUnreachable)


def runtime_task(name: str, *, market: bool = False) -> Callable[[Callable[P, R]], "RuntimeTask[P, R]"]:
    """Return the decorator that makes a function a task called `name`.

    Nothing is cached: a remembered "bought" would be wrong after an eviction. Tasks that call the market (`market`) are
    retried if it does not answer; that is harmless, because every purchase has a token.
    """
    return lambda function: RuntimeTask(function, name, MARKET_RETRIES if market else 0)


class RuntimeTask(Generic[P, R]):
    """A function that is called as a Prefect task; the function itself is `__wrapped__`.

    Prefect takes more than a second to import, so that is left to the first call: a verb that shows a table calls none.
    When its flow run is cancelled in the UI, the task ends as cancelled, where Prefect would log a crash of it; the
    flow receives the signal.
    """

    __wrapped__: Callable[P, R]

    def __init__(self, function: Callable[P, R], name: str, retries: int) -> None:
        self._name = name
        self.retries = retries
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the task; return its result, or raise the signal that ended it."""
        from prefect import State
        from prefect.exceptions import TerminationSignal

        result: Any = self.task(*args, **kwargs)
        if isinstance(result, State) and result.name == _TOLD_TO_END:
            raise TerminationSignal(signal.SIGTERM)
        return cast(R, result)

    @cached_property
    def task(self) -> "Task[P, R]":
        """The task, for what Prefect alone can do: other options, a run in the background."""
        from prefect import Task
        from prefect.cache_policies import NO_CACHE

        return Task(
            _outlived(self.__wrapped__),
            name=self._name,
            cache_policy=NO_CACHE,
            persist_result=False,
            retries=self.retries,
            retry_delay_seconds=1,
            retry_condition_fn=_unreachable,
        )


def _outlived(function: Callable[P, R]) -> Callable[P, R]:
    from prefect.exceptions import TerminationSignal
    from prefect.states import Cancelled

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except TerminationSignal:
            return cast(R, Cancelled(name=_TOLD_TO_END, message="its flow run was told to end"))

    return run


def untraversed(value: R) -> R:
    """Return an argument for a task in which Prefect looks for no futures of other tasks: it would visit every part.

    Outside a flow run, where a task is called as a plain function, it is the value itself.
    """
    from prefect.runtime import flow_run
    from prefect.utilities.annotations import quote

    return cast(R, quote(value)) if flow_run.id else value


def cross_zone_usd_per_gb() -> float:
    """Return the price of a gigabyte between zones, of this process's settings."""
    return load_settings().cross_zone_usd_per_gb
