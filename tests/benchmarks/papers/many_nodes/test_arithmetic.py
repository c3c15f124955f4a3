"""What the benchmarks of many nodes decide and work out, without a node."""

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proteus_spot.benchmarks.papers.many_nodes.elasticity import kernels_s
from proteus_spot.benchmarks.papers.many_nodes.elasticity import load_for as elastic_load
from proteus_spot.benchmarks.papers.many_nodes.layouts import (
    KERNEL,
    PAPER_FIGURES,
    scalings,
    table_seconds,
    tierings,
    traditional,
)
from proteus_spot.benchmarks.papers.many_nodes.measurement import Measured, load_for
from proteus_spot.benchmarks.papers.many_nodes.network_namespaces import NetworkPlan, _leftovers, shape
from proteus_spot.benchmarks.papers.many_nodes.scaling import ideal
from proteus_spot.benchmarks.papers.many_nodes.sleeping_app import Kernel, parse_kernels
from proteus_spot.benchmarks.papers.many_nodes.stalls import slowdown, stall, usual, waits
from proteus_spot.benchmarks.papers.many_nodes.tiering import _figure as tiering_figure
from proteus_spot.psengine.config import Stage


@pytest.mark.parametrize("n", [16, 32, 64])
def test_every_layout_has_all_nodes_and_the_same_work(n: int) -> None:
    layouts = [traditional(n), *tierings(n)]
    assert {layout.nodes for layout in layouts} == {n}
    assert len({load_for(layout, 1.0).work_s for layout in layouts}) == 1
    assert {layout.transient / layout.reliable for layout in layouts if layout.name == "stage 2"} >= {15.0, 1.0}
    assert (1, n - 1) in [(layout.reliable, layout.transient) for layout in layouts if layout.stage == 3]
    for layout in layouts:
        load = load_for(layout, 1.0)
        assert (load.n_partitions, load.n_shards) == (layout.workers, layout.servers)
    assert load_for(traditional(n), 1.0).work_s / n == KERNEL


def test_with_sixteen_nodes_figure_13_s_stage_2_is_figure_12_s() -> None:
    def direct(n: int, figures: tuple[int, ...] = PAPER_FIGURES) -> list[tuple[str, Stage | None]]:
        return [(layout.figure, layout.stage) for layout in tierings(n, figures)]

    assert [figure for figure, stage in direct(16) if stage == 2] == ["12", "14"]
    assert [figure for figure, stage in direct(32) if stage == 2] == ["12", "13", "14"]
    assert direct(16, (13,)) == [("13", 2), ("13", 3)]
    assert direct(64, (12, 14)) == [("12", 2), ("14", 2), ("14", 3), ("14", None)]


def test_more_nodes_are_given_slower_links() -> None:
    assert [table_seconds(n) for n in (16, 32, 64)] == [0.75, 1.5, 4.5]


def test_figure_15_goes_from_4_to_64() -> None:
    assert [(one.nodes, one.name) for one in scalings()] == [
        (4, "traditional"), (8, "stage 1"), (16, "stage 3"), (32, "stage 3"),
        (64, "stage 3"), ]  # fmt: skip
    first = Measured(scalings()[0], [8.0, 10.0], 0.1, 0.2, 0.1, 1.0)
    assert ideal(first, 16) == [2.0, 2.5]


@pytest.mark.parametrize(("communicating", "meant"), [(0.39, False), (0.4, True), (0.6, True), (0.61, False)])
def test_links_that_do_not_stand_to_kernels_as_meant_are_told_with_each_figure(
    communicating: float, meant: bool
) -> None:
    beside = Measured(traditional(16), [2.0], communicating, 0.2, 0.1, 1.0)
    one = Measured(tierings(16)[0], [4.0], 0.9, 0.2, 0.1, 1.0)
    told = tiering_figure(one, beside)
    assert told.valid == ("NOT AS MEANT" not in told.note) == meant
    busy = Measured(one.layout, [4.0], 0.9, 0.71, 0.1, 1.0)
    assert not tiering_figure(busy, beside).valid


def test_a_result_of_a_busy_machine_is_invalid() -> None:
    layout = traditional(16)
    assert "INVALID" not in Measured(layout, [1.0], 0.5, 0.70, 0.3, 1.0).note
    assert "host's CPU 71% (nodes 30%): INVALID, above 70%" in Measured(layout, [1.0], 0.5, 0.71, 0.3, 1.0).note


def test_shards_are_shared_out_evenly_before_and_after() -> None:
    for n in (8, 16, 32, 64):
        shards = elastic_load(n).n_shards
        assert shards % 4 == shards % ((n - 4 + 1) // 2) == 0


def test_kernels_take_longer_with_more_nodes_and_less_so_than_tables() -> None:
    assert [round(kernels_s(n), 2) for n in (16, 64)] == [1.88, 3.75]
    assert elastic_load(64).work_s == 64 * kernels_s(64)


def test_a_clock_is_compared_with_the_slower_side() -> None:
    seconds = [4.0, 4.0, 4.2, 4.4, 1.0, 1.0, 1.0, 1.0]
    assert usual(seconds, 4) == 4.0
    assert slowdown(seconds, 4) == pytest.approx(0.1)
    assert slowdown([4.0, 4.0, 4.0, 3.0, 1.0, 1.0, 1.0], 4) == 0.0
    assert slowdown([1.0, 1.0, 1.0, 2.0, 4.6, 4.0, 4.0, 4.0], 4) == pytest.approx(0.15)


def test_of_what_was_told_before_the_clocks_since_then_count_together() -> None:
    seconds = [4.0, 4.0, 4.0, 4.0, 4.6, 4.0, 4.0, 4.0, 4.0, 12.0, 12.0, 12.0]
    assert slowdown(seconds, 9) == 0.0  # the clocks after it take longer, as they have fewer nodes
    assert slowdown(seconds, 9, announced=5) == pytest.approx(0.15 / 4)
    assert slowdown(seconds, 9, announced=6) == 0.0
    assert slowdown(seconds, 5, announced=5) == slowdown(seconds, 5)
    slow_to_the_end = [4.0, 4.0, 4.0, 9.0, 9.0, 9.0, 9.0, 4.0, 4.0, 4.0]
    assert slowdown(slow_to_the_end, 7, announced=7) == 0.0  # to its neighbours it looks usual
    assert slowdown(slow_to_the_end, 7, announced=4) == pytest.approx(1.25)
    assert usual(slow_to_the_end, 7, announced=4) == 4.0


def test_waits_are_between_kernels_and_count_for_the_clock_that_comes() -> None:
    log = "kernel 1 0.0 1.0\nsomething else\nkernel 1 1.0 2.0\nkernel 2 2.5 3.5\nkernel 3 5.5 6.0\nkernel 3 0.1\n"
    kernels = parse_kernels(log)
    assert kernels[0] == Kernel(1, 0.0, 1.0)
    assert waits(kernels) == {2: 0.5, 3: 2.0}
    again = [*kernels, Kernel(2, 9.0, 9.5)]
    assert waits(again) == {2: 3.5, 3: 2.0}, "of a clock done again, and of one in batches, all waits count"
    assert waits(again, since_s=max(kernel.began_s for kernel in kernels)) == {2: 3.0}


def test_a_stall_is_what_a_node_waits_beyond_its_usual() -> None:
    steady = {clock: 0.5 for clock in range(2, 12)}
    assert stall([steady], 6) == 0.0
    assert stall([steady, steady | {7: 1.25}], 6) == 0.75
    assert stall([steady | {9: 3.0}], 6) == 0.0  # that is not of this change
    assert stall([{}], 6) == 0.0
    held_up_from_4_on = steady | dict.fromkeys(range(4, 8), 1.25)
    assert (stall([held_up_from_4_on], 6), stall([held_up_from_4_on], 6, announced=4)) == (0.0, 0.75)


@given(st.integers(2, 4_194_304), st.integers(1, 65))
def test_names_are_short_enough_and_addresses_are_of_one_network(pid: int, n: int) -> None:
    plan = NetworkPlan(pid, n, 1_000_000)
    addresses = [plan.address(i) for i in range(n)]
    assert len({*addresses, plan.ours}) == n + 1
    assert all(ip_address(one) in plan.network for one in (*addresses, plan.ours))
    assert max(len(plan.end(n - 1)), len(plan.bridge)) <= 15  # the kernel's limit


def test_everybody_is_told_of_everybody_else() -> None:
    plan = NetworkPlan(7, 3, 1_000_000)
    lines = plan.inside(1)
    assert f"addr add {plan.address(1)}/24 dev eth0" in lines
    assert [line.split()[2] for line in lines if line.startswith("neigh")] == [plan.address(0), plan.address(2)]
    assert len([line for line in plan.links() if line.startswith("netns add")]) == 3
    assert shape("x", 1_000_000).startswith("qdisc replace dev x root tbf rate 8000000bit ")


def test_only_what_dead_processes_left_is_removed() -> None:
    names = ["pb12b", "pb12h0", "pb12n0", "pb13n4"]
    assert _leftovers(names, alive=lambda pid: pid == 12) == ["pb13n4"]
