"""Processes of a node that run the tasks of a net: a library has one random generator, and one GIL, a process."""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import queue
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from proteus_spot.nets.channel import Channel
from proteus_spot.nets.local_steps import Errand, LocalSteps, Trained
from proteus_spot.nets.settings import NetSettings
from proteus_spot.nets.trainer import Arrays
from proteus_spot.psengine.apps.base import NodeBroken
from proteus_spot.psengine.tables.allowed_values import WrongValue
from proteus_spot.psengine.telemetry.formatting import format_error

#: Seconds that a process may take to end when it is asked to.
_END_S = 2.0


class TaskProcess:
    """A process that takes the local steps of one worker at a time."""

    def __init__(self, net: NetSettings, cpus: Sequence[int]) -> None:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        self._channel = Channel(ours)
        kind = type(net)
        made_by = kind.__module__, kind.__qualname__, net.params
        self._process = context.Process(target=serve, args=(theirs, made_by, tuple(cpus), list(sys.path)), daemon=True)
        self._process.start()
        theirs.close()
        #: Partitions whose examples it has.
        self.partitions: set[int] = set()

    def take(self, errand: Errand, data: Arrays) -> Trained:
        """Return what comes of a task.

        Raises
        ------
        WrongValue
            What the user's code raised, as one line with its place.
        NodeBroken
            If the process has died.
        """
        try:
            self._channel.send((errand, None if errand.partition in self.partitions else dict(data)))
            answer = self._channel.receive()
        except (EOFError, OSError) as error:
            self._process.join(_END_S)
            raise NodeBroken(f"a process of a task has ended with {_ending(self._process.exitcode)}") from error
        if isinstance(answer, str):
            raise WrongValue(answer)
        self.partitions.add(errand.partition)
        trained: Trained = answer
        return trained.with_moments_apart()

    def end(self) -> None:
        """End the process."""
        self._channel.close()
        self._process.kill()
        self._process.join(_END_S)


def _ending(code: int | None) -> str:
    return "no code" if code is None else f"signal {-code}" if code < 0 else f"exit code {code}"


class TaskProcesses:
    """The processes of a node.

    Parameters
    ----------
    net : NetSettings
    count : int
        How many there are.
    """

    def __init__(self, net: NetSettings, count: int) -> None:
        cpus, each = sorted(os.sched_getaffinity(0)), net.threads
        # Where several nodes share a machine, each with some of its cores, the kernel deals the cores out.
        pins = count * each >= len(cpus)
        self._children = [
            TaskProcess(net, cpus[number * each : (number + 1) * each] if pins else ()) for number in range(count)
        ]
        self._free = list(self._children)
        self._changed = threading.Condition()

    @contextmanager
    def borrowed(self, partition: int) -> Iterator[TaskProcess]:
        """Have a process to oneself: one that has the examples of a partition, if such a one is free."""
        with self._changed:
            self._changed.wait_for(lambda: self._free)
            child = next((each for each in self._free if partition in each.partitions), self._free[0])
            self._free.remove(child)
        try:
            yield child
        finally:
            with self._changed:
                self._free.append(child)
                self._changed.notify()

    def warm(self, errand: Errand, data: Arrays) -> None:
        """Have each process take the steps of a task whose outcome is dropped."""
        threads = [threading.Thread(target=_try, args=(child, errand, data)) for child in self._children]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def end(self) -> None:
        """End the processes."""
        for child in self._children:
            child.end()


def _try(child: TaskProcess, errand: Errand, data: Arrays) -> None:
    with contextlib.suppress(WrongValue, NodeBroken):  # the first task says it, with its worker and clock
        child.take(errand, data)


# -- in the process -------------------------------------------------------------------------------------------------


def serve(end: Connection, made_by: tuple[str, str, dict[str, Any]], cpus: Sequence[int], path: list[str]) -> None:
    """Take local steps until the node's process closes its end, or has died."""
    if cpus:
        os.sched_setaffinity(0, cpus)
    sys.path[:] = path
    channel = Channel(end)
    received: queue.SimpleQueue[tuple[Errand, Arrays | None]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(channel, received), daemon=True).start()
    module, name, params = made_by
    steps: LocalSteps | None = None
    data: dict[int, Arrays] = {}
    while True:
        errand, examples = received.get()
        if examples is not None:
            data[errand.partition] = {name: np.array(array) for name, array in examples.items()}
        try:
            if steps is None:
                steps = LocalSteps(getattr(importlib.import_module(module), name)(**params))
            answer: Any = steps.take(errand, data[errand.partition])
        except Exception as error:  # noqa: BLE001 - a user's code may raise anything
            answer = format_error(error, f"{module}:{name}")
        channel.send(answer)


def _listen(channel: Channel, received: queue.SimpleQueue[Any]) -> None:
    """Queue what comes; end the process with the node's, also in the midst of a step."""
    while True:
        try:
            received.put(channel.receive())
        except (EOFError, OSError):
            os._exit(0)
