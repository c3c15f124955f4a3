"""A table of tasks with its driver, without a controller."""

from collections.abc import Iterable

from proteus_spot.psengine.drivers.interface import Driver
from proteus_spot.psengine.drivers.ssp import Ssp
from proteus_spot.psengine.scheduling.driver_host import DriverHost
from proteus_spot.psengine.scheduling.task_table import TaskTable


def ssp_table(n_partitions: int, staleness: int = 0) -> tuple[TaskTable, DriverHost]:
    """Return the table of a new job under SSP."""
    return driven_table(n_partitions, Ssp(staleness))


def driven_table(n_partitions: int, driver: Driver) -> tuple[TaskTable, DriverHost]:
    """Return the table of a new job with a driver."""
    table = TaskTable(n_partitions)
    host = DriverHost(lambda: driver, table, 0)
    host.resume(None)
    return table, host


def commit(table: TaskTable, host: DriverHost) -> None:
    """Commit what is complete, as the controller does after each report."""
    while table.commit_next():
        host.committed(table.common)


def complete(table: TaskTable, host: DriverHost, partitions: Iterable[int]) -> None:
    """Complete what these partitions run."""
    for partition in partitions:
        running = table.running[partition]
        assert table.complete(partition, running.group, running.attempt)
    commit(table, host)
