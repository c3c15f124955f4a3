"""The memory of a node by kind, as it is reported: tables, states of executors, input."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from psengine.server.replica_store import ReplicaStore
from psengine.server.shard_server import ShardServer
from psengine.telemetry.memory_use import ArrayBytes
from psengine.worker.executor_host import ExecutorHost


class NodeMemory:
    """Measures one process.

    Parameters
    ----------
    data : mapping
        {partition: the data that the application prepared}, which never changes; it is looked at once.
    """

    def __init__(
        self, server: ShardServer, replicas: ReplicaStore, data: Mapping[int, Any], host: ExecutorHost
    ) -> None:
        self._server, self._replicas, self._data, self._host = server, replicas, data, host
        #: {partition: its data, and what was counted in it}.
        self._inputs: dict[int, tuple[Any, ArrayBytes]] = {}

    def by_kind(self) -> dict[str, int]:
        """Return the bytes of the arrays of each kind."""
        self._inputs = {
            partition: before
            if (before := self._inputs.get(partition)) is not None and before[0] is data
            else (data, ArrayBytes().count(data))
            for partition, data in self._data.items()
        }
        counted = ArrayBytes()
        counted.count(self._host.states)
        for partition, executor in self._host.executors.items():
            known = self._inputs.get(partition)
            counted.count(executor, known=None if known is None else known[1])
        return {
            "tables": ArrayBytes().count(self._server.stores, self._replicas).total,
            "states": counted.total,
            "input": sum(input_bytes.total for _, input_bytes in self._inputs.values()),
        }
