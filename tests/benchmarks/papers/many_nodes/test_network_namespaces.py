"""Nodes in network namespaces: links as slow as they are told, a job that trains over them, and nothing left behind."""

import os
import signal
import socket
import subprocess
import sys
from ipaddress import ip_address
from pathlib import Path
from time import monotonic

import pytest

from proteus_spot.benchmarks.papers.many_nodes import network_namespaces as netns
from proteus_spot.benchmarks.papers.many_nodes.cluster import Workload, places
from proteus_spot.benchmarks.papers.many_nodes.elasticity import Course, join_and_leave, lose
from proteus_spot.benchmarks.papers.many_nodes.layouts import STALENESS, TierLayout
from proteus_spot.benchmarks.papers.many_nodes.measurement import _CLOCKS, load_for, measure
from proteus_spot.benchmarks.papers.many_nodes.network_namespaces import NetworkPlan, network
from proteus_spot.benchmarks.papers.many_nodes.tiering import run
from tests import conftest

LACKING = netns.lacking()
needs_namespaces = pytest.mark.skipif(bool(LACKING), reason=LACKING)
SMALL = 64 * 1024


@pytest.fixture
def _namespaces_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process connect only into its own namespaces, which are on this machine, and to the loopback."""
    network, check = NetworkPlan(os.getpid(), 1, 1).network, conftest._check_address

    def check_others(address: object) -> None:
        if not (isinstance(address, tuple) and ip_address(address[0]) in network):
            check(address)

    monkeypatch.setattr(conftest, "_check_address", check_others)


def test_where_it_cannot_run_it_says_so_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert run(tmp_path) == []
    assert capsys.readouterr().out == "tiering: skipped: needs root, for network namespaces; run it as root\n"


def test_a_tool_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda tool: None if tool == "tc" else f"/sbin/{tool}")
    assert netns.lacking() == "needs tc; install iproute2"


@needs_namespaces
@pytest.mark.papers
def test_a_link_carries_no_more_than_its_rate_and_is_gone_in_the_end() -> None:
    n_bytes, rate = 1_000_000, 1_000_000
    with network(1, rate) as made, socket.create_server((made.plan.ours, 0)) as server:
        port = server.getsockname()[1]
        script = (
            f"import socket; s = socket.create_connection(({made.plan.ours!r}, {port})); s.sendall(bytes({n_bytes}))"
        )
        sender = subprocess.Popen(["ip", "netns", "exec", made.plan.namespace(0), sys.executable, "-c", script])
        with server.accept()[0] as connection:
            began, left = monotonic(), n_bytes
            while left:
                left -= len(connection.recv(left))
            took = monotonic() - began
        assert sender.wait() == 0
        # The bucket is full at first, and so is what was on its way; a slow machine only makes it longer.
        assert took > 0.8 * (n_bytes - 2 * netns._BURST) / rate
        assert netns._existing()
    assert ours() == []


@needs_namespaces
def test_what_a_killed_process_left_is_removed_by_the_next_one() -> None:
    script = (
        "import os, signal; from proteus_spot.benchmarks.papers.many_nodes.network_namespaces import network\n"
        "with network(1, 10**6): os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.Popen([sys.executable, "-c", script])
    assert killed.wait() == -signal.SIGKILL
    assert [name for name in netns._existing() if netns._pid(name) == killed.pid]
    with network(1, 1_000_000):
        assert not [name for name in netns._existing() if netns._pid(name) == killed.pid]


@needs_namespaces
def test_nothing_is_left_where_making_them_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proteus_spot.benchmarks.papers.many_nodes.network_namespaces._BURST", "nonsense")
    with pytest.raises(OSError, match="tc"), network(2, 1_000_000):
        pass
    assert ours() == []


@needs_namespaces
@pytest.mark.slow
@pytest.mark.usefixtures("_namespaces_too")
@pytest.mark.papers
def test_stage_2_trains_over_links_that_carry_what_was_reckoned(tmp_path: Path) -> None:
    layout = TierLayout("12", "stage 2", 1, 2, 2)
    with places(3, 4_000_000, tmp_path) as there:
        found = measure(there, layout, load_for(layout, 0.05, SMALL * 16))
    assert len(found.seconds) == _CLOCKS
    assert min(found.seconds) > 0
    assert 0 < found.cpu <= 1
    # One server: what the two others read goes over its link, and copies for the reliable node besides.
    assert SMALL * 16 * 1.5 < found.link_bytes < SMALL * 16 * 5
    assert ours() == []


@needs_namespaces
@pytest.mark.storm  # a minute, on a machine that does nothing else: it reckons with how long clocks take
@pytest.mark.usefixtures("_namespaces_too")
def test_nodes_join_leave_and_are_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proteus_spot.benchmarks.papers.many_nodes.elasticity._RELIABLE", 1)
    load = Workload(SMALL, 0.4, 6, 2, STALENESS, tells=True)
    with places(3, 4_000_000, tmp_path) as there:
        seconds, figures = join_and_leave(there, 3, Course(4, 8, 60, 3.0), load)
        lost = lose(there, 3, load)
    assert len(seconds) == 60
    assert [one.unit for one in figures] == ["share", "ms", "share", "ms"]
    assert "0 micro-tasks done again" in figures[0].note
    resumed, again, held_up = lost
    assert resumed.ours > 0
    assert 0 <= again.ours <= 1 + STALENESS + 2  # the copies of the last clocks may be under way yet
    assert 0 <= held_up.ours < 5 * held_up.beside, "some clocks at the most"
    assert ours() == []


def ours() -> list[str]:
    return [name for name in netns._existing() if netns._pid(name) == os.getpid()]
