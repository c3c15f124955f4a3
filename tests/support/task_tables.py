"""A table of tasks with its driver, without a controller."""

from collections.abc import Iterable

from proteus_spot.psengine.drivers.interface import Driver
from proteus_spot.psengine.drivers.ssp import Ssp
from proteus_spot.psengine.scheduling.driver_host import DriverHost
from proteus_spot.psengine.scheduling.micro_tasks import MicroTaskTable


def ssp_table(n_partitions: int, staleness: int = 0) -> tuple[MicroTaskTable, DriverHost]:
    """Return the table of a new job under SSP."""
    return driven_table(n_partitions, Ssp(staleness))


def driven_table(n_partitions: int, driver: Driver) -> tuple[MicroTaskTable, DriverHost]:
    """Return the table of a new job with a driver."""
    table = MicroTaskTable(n_partitions)
    host = DriverHost(lambda: driver, table, 0)
    host.resume(None)
    return table, host


def commit(table: MicroTaskTable, host: DriverHost) -> None:
    """Commit what is complete, as the controller does after each report."""
    while table.commit_next():
        host.committed(table.common)


def complete(table: MicroTaskTable, host: DriverHost, executors: Iterable[int]) -> None:
    """Complete what these executors run."""
    for executor in executors:
        running = table.running[executor]
        assert table.complete(executor, running.clock, running.attempt)
    commit(table, host)
