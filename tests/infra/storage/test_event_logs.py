"""Event logs in blobs: pages of several controllers in order, replaced pages, the maximum number of pages."""

from pathlib import Path

import pytest

from proteus_spot.infra.storage import event_logs as stories
from proteus_spot.infra.storage.blobs import Blobs
from proteus_spot.infra.storage.event_logs import keep_page, read_event_log


def entry(at: float) -> dict[str, object]:
    return {"at": at, "clock": 1, "nodes": ["a"], "shards": [], "text": "ö\n"}


def test_pages_are_read_in_the_order_of_their_events(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path.as_uri())
    assert read_event_log(blobs, "job") == []
    keep_page(blobs, "job", 2000.5, 0, [entry(5)])
    keep_page(blobs, "job", 999.0, 1, [entry(3), entry(4)])
    keep_page(blobs, "job", 999.0, 0, [entry(1)])
    keep_page(blobs, "job", 999.0, 0, [entry(1), entry(2)])
    assert read_event_log(blobs, "job") == [entry(at) for at in (1, 2, 3, 4, 5)]


def test_the_newest_pages_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stories, "MOST_PAGES", 2)
    blobs = Blobs(tmp_path.as_uri())
    for number in range(4):
        keep_page(blobs, "job", 1.0, number, [entry(number)])
    assert [found["at"] for found in read_event_log(blobs, "job")] == [2, 3]
