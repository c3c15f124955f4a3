"""When nodes are offered for release, how many, and that the others can hold all that the job holds."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Sequence
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from proteus_spot.psengine.tiers.scale_in import PATIENCE, RESERVE, JobMemory, ScaleIn


def holding(n_bytes: int, transient: int, least: int = 0, servers: int = 0, reliable: int = 1) -> JobMemory:
    names = [f"t{number}" for number in range(transient, 0, -1)]  # the newest first
    return JobMemory(reliable, names, n_bytes, n_bytes, servers, least)


def after(steps: Sequence[JobMemory]) -> ScaleIn:
    scale_in = ScaleIn()
    for step in steps:
        scale_in.look(step)
    return scale_in


def histories(least: int) -> st.SearchStrategy[list[JobMemory]]:
    sizes, transient, servers = st.integers(0, 10**9), st.integers(0, 12), st.integers(0, 6)
    return st.lists(st.builds(holding, sizes, transient, st.just(least), servers), max_size=30)


@given(st.integers(0, 3).flatmap(histories))
def test_those_that_stay_can_hold_all_and_the_least_stay(steps: list[JobMemory]) -> None:
    scale_in = ScaleIn()
    most = peak = 0
    for at, step in enumerate(steps):
        before = scale_in.machines
        scale_in.look(step)
        n_nodes = step.n_reliable + len(step.transient)
        most, peak = (n_nodes, step.n_bytes) if n_nodes > most else (most, max(peak, step.n_bytes))
        stay = len(step.transient) - len(scale_in.offered)
        assert set(scale_in.offered) <= set(step.transient)
        if scale_in.machines is None:
            assert not scale_in.offered
            continue
        assert stay == min(len(step.transient), scale_in.machines)
        assert scale_in.machines >= step.least
        if before is None or scale_in.machines < before:  # a new offer: with a reserve, at each of the last clocks
            for recent in steps[at + 1 - PATIENCE : at + 1]:
                assert (step.n_reliable + scale_in.machines) * (peak / most) * (1 - RESERVE) >= recent.n_bytes - 1


@given(st.integers(1, 12), st.integers(10**3, 10**9), st.lists(st.floats(0.95, 1.05), min_size=5, max_size=30))
def test_memory_that_only_wavers_offers_nothing(transient: int, n_bytes: int, wavers: list[float]) -> None:
    scale_in = after([holding(int(share * n_bytes * 0.99), transient) for share in wavers])
    assert (scale_in.offered, scale_in.machines, scale_in.most_servers) == ((), None, None)


def test_half_the_memory_lets_half_of_the_nodes_go_and_again() -> None:
    full, half = [holding(800, 7)] * 5, [holding(350, 7)] * PATIENCE
    assert after([*full, *half[:-1]]).offered == (), "not at once"
    scale_in = after([*full, *half])
    assert scale_in.offered == ("t7", "t6", "t5", "t4")  # 4 nodes of 100 each hold 350, with a reserve
    scale_in.look(holding(350, 3))
    assert (scale_in.offered, scale_in.machines) == ((), 3)
    for _ in range(PATIENCE):
        scale_in.look(holding(90, 3))
    assert (scale_in.offered, scale_in.machines) == (("t3", "t2", "t1"), 0)  # all fits on the reliable node


def test_an_offer_is_withdrawn_only_when_the_others_cannot_hold_it() -> None:
    scale_in = after([*[holding(800, 7)] * 5, *[holding(350, 7)] * PATIENCE])
    for n_bytes, offered in ((399, 4), (401, 4), (401, 4), (401, 3), (900, 3), (900, 3), (900, 0)):
        scale_in.look(holding(n_bytes, 7))
        assert len(scale_in.offered) == offered
    assert scale_in.machines is None


def test_nodes_that_were_lost_are_no_reason_and_more_nodes_than_ever_begin_anew() -> None:
    full = [holding(800, 7)] * 5
    assert after([*full, *[holding(800, 3)] * 5, *full]).machines is None
    grown = after([*full, *[holding(350, 7)] * PATIENCE, *[holding(350, 9)] * PATIENCE])
    assert (grown.offered, grown.machines) == ((), None)


def test_the_stage_is_kept_and_servers_merge_by_the_tables() -> None:
    scale_in = after([*[holding(800, 7, 2, 4)] * 5, *[holding(160, 7, 2, 4)] * PATIENCE])
    assert (len(scale_in.offered), scale_in.machines, scale_in.most_servers) == (5, 2, 1)


def test_the_example_of_the_page_prints_what_it_says() -> None:
    page = Path(__file__).resolve().parents[3] / "docs" / "scale-in.md"
    ((code, expected),) = re.findall(r"```python\n(.*?)```\n\n    (.*?)\n", page.read_text(), re.DOTALL)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, page.name, "exec"), {})  # noqa: S102 - the page's own code
    assert printed.getvalue().strip() == expected
