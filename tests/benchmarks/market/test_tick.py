"""The benchmark of the tick measures a tick that buys, and counts what it reads."""

from pathlib import Path

import pytest

from proteus_spot.benchmarks.market import tick


@pytest.mark.slow
def test_the_measured_tick_buys_and_loads_its_engine_once(tmp_path: Path) -> None:
    work, loads, whole, decision = tick.run(tmp_path, ticks=12, rounds=1, long_ticks=15)
    assert (loads.ours, loads.beside, loads.ours_spread) == (1, 1, (1, 1))
    assert loads.note.endswith(" 2 commits"), "the order, and what the market answered"
    assert (work.beside_is, whole.beside_is) == (
        "one replay, one decision, one commit",
        "an empty flow on the same server",
    )
    assert whole.what == "a tick that buys, on a journal of 15 ticks: whole"
    assert 0 < work.ours < whole.ours < tick.PERIOD_S
    assert 0 < whole.beside < tick.PERIOD_S
    assert "144,000 candidates and 50 allocations" in decision.what
    assert (decision.beside, decision.unit) == (0.1, "s")


def test_a_late_job_holds_what_its_market_has_sold(tmp_path: Path) -> None:
    late = tick.late_job(tmp_path, 8)
    with late.world(tmp_path / "copy.db") as runtime, tick.without_prefect():
        held = {
            name for record in runtime.store.purchases.allocations("bench", alive=True) for name in record.instance_ids
        }
        assert held == {fact.instance_id for fact in runtime.market.describe() if fact.alive}
        assert sum(entry.record["kind"] == "TickDue" for entry in runtime.store.journals.entries("bench")) == 8
