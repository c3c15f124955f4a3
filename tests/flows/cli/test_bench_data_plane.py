"""`proteus bench data-plane`: what it moves arrives, and nothing of it is left."""

import multiprocessing
from pathlib import Path

import pytest

from proteus_spot.benchmarks.data_plane.data_plane import run
from proteus_spot.benchmarks.data_plane.nodes import Process, node, scheduler


def test_a_small_table_is_moved_both_ways_beside_the_peers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "proteus_spot.benchmarks.data_plane.data_plane.find_spec", lambda _: None
    )  # Ray takes long to start
    before = {process.pid for process in multiprocessing.active_children()}
    figures = run(tmp_path, sizes_mb=(0.1,), shards=(2,))
    assert [(one.what, one.beside_is) for one in figures] == [
        ("push 0.1 MB, 2 shards", "bare TCP over loopback"),
        ("push 0.1 MB, 2 shards", "Dask's own call with the array"),
        ("push 0.1 MB, 2 shards, TLS", "the same without TLS"),
        ("push 0.1 MB, 2 shards", "Dask's own call, empty"),
        ("push 0.1 MB, 2 shards, own node", "a copy in memory"),
        ("pull 0.1 MB, 2 shards", "bare TCP over loopback"),
        ("pull 0.1 MB, 2 shards", "Dask's own call with the array"),
        ("pull 0.1 MB, 2 shards, TLS", "the same without TLS"),
        ("pull 0.1 MB, 2 shards", "Dask's own call, empty"),
        ("pull 0.1 MB, 2 shards, own node", "a copy in memory"),
    ]
    assert all(one.ours > 0 and one.beside > 0 for one in figures)
    assert {process.pid for process in multiprocessing.active_children()} <= before


def test_a_process_that_ends_is_told_and_not_waited_for() -> None:
    with Process(scheduler) as hub, Process(node, "n", hub.ask()) as one:
        one.ask()
        with pytest.raises(RuntimeError, match="has ended"):
            one.ask("move", None, "")
