"""Flows as processes in this one: every call with an effect is a point at which a process may be killed.

The points are found by instrumenting the boundary, not by a list of places: whatever the database commits, whatever
file is renamed or removed under the directory of the database and the blobs, every call of the market's adapter, and
every function of Prefect that a module of `tasks` or `flows` imports. A process that was killed has no further effect:
its `finally` blocks run, as they would not after a SIGKILL, but every call of theirs fails.
"""

import functools
import inspect
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event

from proteus_spot.bidding.market.spot_market import MarketUnreachable
from proteus_spot.infra.simulated_ec2.market import SimSpotMarket
from proteus_spot.infra.storage.blobs import Blobs
from proteus_spot.tasks.task_runtime import RuntimeTask


class Killed(BaseException):
    """The process was killed: no handler may catch this."""


@dataclass(slots=True)
class Process:
    """A flow run's process."""

    name: str
    dead: bool = False
    error: Exception | None = None


@dataclass(slots=True)
class Call:
    """A call across the boundary: its process, what was called, and whether it had an effect."""

    process: str
    name: str
    effect: bool = False


@dataclass(frozen=True, slots=True)
class Cut:
    """Where a process is killed: before or after the call of this number."""

    call: int
    after: bool

    def __str__(self) -> str:
        return f"{'after' if self.after else 'before'} call {self.call}"


@dataclass(slots=True)
class Boundary:
    """The boundary of the flow processes, with the calls across it so far.

    Parameters
    ----------
    cut : where to kill; None: nowhere.
    on_cut : called when that is reached, before anything dies.
    all_die : whether every running process dies there, not only the one that made the call.
    """

    cut: Cut | None = None
    on_cut: Callable[[], None] | None = None
    all_die: bool = False
    calls: list[Call] = field(default_factory=list)
    #: Running processes, the innermost last; None stands for the world's own doings, which are not counted.
    stack: list[Process | None] = field(default_factory=list)
    _pending: int = -1

    def run(self, name: str, flow: Callable[[], Any]) -> Process:
        """Run a flow as a process of its own; return it as it ended."""
        process = Process(name)
        self.stack.append(process)
        try:
            flow()
        except Killed:
            assert process.dead
        except Exception as error:  # noqa: BLE001 - a failed run is looked at by the world
            process.error = error
        finally:
            self.stack.pop()
        return process

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Do something that no flow process does."""
        self.stack.append(None)
        try:
            yield
        finally:
            self.stack.pop()

    @property
    def process(self) -> Process | None:
        """The innermost running process."""
        return self.stack[-1] if self.stack else None

    def enter(self, name: str) -> int:
        """Note that a call begins; return its number, -1 for one that is not counted."""
        self._settle()
        process = self.process
        if process is None:
            return -1
        if process.dead:
            raise Killed
        number = len(self.calls)
        self.calls.append(Call(process.name, name))
        if self.cut == Cut(number, after=False):
            self._kill(process)
        return number

    def leave(self, number: int, effect: bool) -> None:
        """Note that a call has ended."""
        if number < 0:
            return
        self.calls[number].effect = effect
        process = self.process
        if self.cut == Cut(number, after=True) and process is not None:
            self._kill(process)

    def _kill(self, process: Process) -> None:
        if self.on_cut is not None:
            self.on_cut()
        for other in self.stack if self.all_die else [process]:
            if other is not None:
                other.dead = True
        raise Killed

    # The parts of the boundary

    def of_market(self, market: SimSpotMarket) -> Any:
        """Return `market` with its calls counted; those that change its record have an effect."""
        return _CountedMarket(self, market)

    def watch_database(self, engine: Engine) -> None:
        """Count the commits of write transactions."""
        dialect, writes = engine.dialect, [False]
        do_commit = dialect.do_commit

        def before(connection: Connection) -> None:
            writes[0] = bool(connection.get_execution_options().get("proteus_writes"))

        def commit(dbapi_connection: Any) -> None:
            number = self.enter("store commit") if writes[0] else -1
            do_commit(dbapi_connection)
            self.leave(number, effect=True)

        event.listen(engine, "commit", before)
        dialect.do_commit = commit  # type: ignore[method-assign]

    def watch_files(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        """Count what is renamed or removed under the directory of database and blobs, by whatever method."""
        _AUDITED[:] = [(self, str(root))]
        if not _HOOKED:
            sys.addaudithook(_audit)
            _HOOKED.append(True)
        for name, method in inspect.getmembers(Blobs, inspect.isfunction):
            if not name.startswith("_"):
                patch.setattr(Blobs, name, self._until_done(method))

    def _until_done(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            answer = method(*args, **kwargs)
            self._settle()
            return answer

        return call

    def audit(self, what: str) -> None:
        """Note a change of a file, which is about to happen."""
        self._pending = self.enter(f"files {what}")

    def _settle(self) -> None:
        """Note that the change of a file has happened."""
        number, self._pending = self._pending, -1
        self.leave(number, effect=True)

    def watch_prefect(self, patch: pytest.MonkeyPatch, answers: dict[str, Callable[..., Any]], retry: Any) -> None:
        """Take Prefect away: tasks become functions, and its functions answer by `answers`, or None.

        Parameters
        ----------
        retry : called between two attempts of a task that the market did not answer.
        """
        patch.setattr("prefect.events.emit_event", self._prefect_call("emit_event", lambda *a, **k: None))
        for module in flow_modules():
            for name, value in list(vars(module).items()):
                if isinstance(value, RuntimeTask):
                    patch.setattr(module, name, _as_function(value, retry))
                elif name == "get_run_logger":
                    patch.setattr(module, name, lambda: logging.getLogger("flows"))
                elif inspect.isfunction(value) and _calls_the_server(value):
                    patch.setattr(module, name, self._prefect_call(name, answers.get(name, lambda *a, **k: None)))

    def _prefect_call(self, name: str, answer: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            number = self.enter(f"prefect {name}")
            value = answer(*args, **kwargs)
            self.leave(number, effect=True)
            return value

        return call


class _CountedMarket:
    def __init__(self, boundary: Boundary, market: SimSpotMarket) -> None:
        self._boundary, self._market = boundary, market

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._market, name)
        if not inspect.ismethod(method):
            return method

        def call(*args: Any, **kwargs: Any) -> Any:
            number = self._boundary.enter(f"market {name}")
            before = self._market.log()
            try:
                answer = method(*args, **kwargs)
            except BaseException:
                self._boundary.leave(number, effect=self._market.log() != before)
                raise
            self._boundary.leave(number, effect=self._market.log() != before)
            return answer

        return call


#: What of Prefect only reads this process, or is a client that the flow itself treats as one that may be away.
_LOCAL = ("prefect.settings", "prefect.utilities", "prefect.logging", "prefect.runtime", "prefect.client")


def _calls_the_server(function: Callable[..., Any]) -> bool:
    return function.__module__.startswith("prefect.") and not function.__module__.startswith(_LOCAL)


_AUDITED: list[tuple[Boundary, str]] = []
_HOOKED: list[bool] = []


def _audit(name: str, args: tuple[Any, ...]) -> None:
    if name not in ("os.rename", "os.remove") or not _AUDITED:
        return
    boundary, root = _AUDITED[0]
    path = os.fspath(args[1] if name == "os.rename" else args[0])
    if isinstance(path, str) and path.startswith(root) and not path.endswith(".new"):
        boundary.audit(f"{name.removeprefix('os.')} {path.removeprefix(root)}")


def flow_modules() -> list[ModuleType]:
    """Return the loaded modules of `tasks` and `flows`."""
    return [
        module for name, module in sys.modules.items() if name.startswith(("proteus_spot.tasks", "proteus_spot.flows"))
    ]


def _as_function(task: Any, retry: Callable[[], None]) -> Callable[..., Any]:
    function = inspect.unwrap(task)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        for _ in range(task.retries or 0):
            try:
                return function(*args, **kwargs)
            except MarketUnreachable:
                retry()
        return function(*args, **kwargs)

    return call


def run_coroutine(coroutine: Any) -> Any:
    """Run an `async def` flow that awaits nothing."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("the flow awaits something")
