"""The tables of a job's report."""

from types import SimpleNamespace
from typing import Any, cast

from proteus_spot.reports.pages.page_tables import about_tables


def test_a_result_table_is_as_short_for_many_clocks_as_for_one() -> None:
    def rows(clocks: int) -> int:
        series = [[clock, 1, 2, 3] for clock in range(clocks)]
        result = {"clocks": clocks, "memory_by_clock": series, "anything_by_clock": series, "losses": series}
        job = SimpleNamespace(
            result=result, spec={}, state="finished", created_at_s=0, ended_at_s=None, failure=None, stop_by=None
        )
        return len(about_tables(cast(Any, SimpleNamespace(job=job)))[1].rows)

    assert rows(3500) == rows(1) < 10
