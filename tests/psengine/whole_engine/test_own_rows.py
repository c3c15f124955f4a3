"""Rows of own tables through the whole engine: two partitions that have one row fail the job at once."""

from __future__ import annotations

import asyncio

from proteus_spot.psengine.config import JobConfig
from proteus_spot.psengine.controller.state import ENDED
from tests.support.lossy_network import Trouble
from tests.support.simulated_cluster import WiredCluster
from tests.support.small_apps import PARTITIONS, TOKENS, Tally
from tests.support.virtual_time import run_virtual


class Shared(Tally):
    """Partition 3 also has the last row of partition 2."""

    def rows(self, data: int, clock: int) -> dict[str, slice]:
        first = data * TOKENS
        return {"assigned": slice(first - 1, first + TOKENS - 1) if data == 3 else slice(first, first + TOKENS)}


def test_two_partitions_that_have_one_row_fail_the_job_with_a_line_that_names_both() -> None:
    cluster = WiredCluster(1, Trouble())
    config = JobConfig("job", f"{__name__}:Shared", n_partitions=PARTITIONS, clocks=500, n_reliable=1)

    async def story() -> None:
        cluster.open()
        try:
            for name in ("r1", "t1", "t2"):
                cluster.start(name, "reliable" if name == "r1" else "transient")
            await cluster.shell.start(config.to_dict())
            while cluster.shell.controller.job.state not in ENDED:
                await asyncio.sleep(0.1)
        finally:
            await cluster.close()

    run_virtual(story(), 600.0)
    controller = cluster.shell.controller
    assert (controller.job.state, controller.job.reason) == (
        "failed",
        (
            f"table 'assigned': row {3 * TOKENS - 1} belongs to partition 2 and to partition 3; with own=True each row "
            "belongs to one partition: give each other rows, or leave out own"
        ),
    )
    assert controller.job.tasks is not None
    assert controller.job.tasks.common <= 1
