"""Alarms in the bucket: read as the text of a stranger."""

import json
import logging
from pathlib import Path

import pytest

from proteus_spot.infra.storage.alarms import Alarm, read_alarms, remove_alarm, write_alarm
from proteus_spot.infra.storage.blobs import Blobs
from proteus_spot.infra.storage.job_paths import JobPaths


def test_alarms_are_read_oldest_first_and_removed_one_by_one(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path.as_uri())
    late, early = Alarm("i-1", 20.0, "late"), Alarm("i-2", 10.0, "early")
    for alarm in (Alarm("i-1", 5.0, "replaced"), late, early):
        write_alarm(blobs, "job", alarm)
    assert read_alarms(blobs, "job") == [early, late]
    assert read_alarms(blobs, "other") == []
    remove_alarm(blobs, "job", early)
    assert read_alarms(blobs, "job") == [late]


def test_what_a_stranger_writes_is_cut_to_a_line_and_what_is_no_alarm_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    blobs, top = Blobs(tmp_path.as_uri()), JobPaths("job").alarms
    good = {"schema": 1, "instance_id": "../../x", "at_s": 1.0, "reason": "a\x1b[2J\nb" + "c" * 1000}
    blobs.write_json(f"{top}/i-1.json", good)
    bad = [None, [], {}, {**good, "schema": 2}, {**good, "at_s": "soon"}, {**good, "at_s": float("nan")}]
    for number, record in enumerate(bad):
        blobs.write_bytes(f"{top}/i-bad-{number}.json", json.dumps(record).encode())
    blobs.write_bytes(f"{top}/i-damaged.json", b"{")
    blobs.write_json(f"{top}/a b.json", good)
    blobs.write_json(f"{top}/deep/i-2.json", good)
    with caplog.at_level(logging.WARNING):
        (alarm,) = read_alarms(blobs, "job")
    assert (alarm.instance_id, alarm.at_s) == ("i-1", 1.0)
    assert alarm.reason.startswith("a[2Jbc")
    assert len(alarm.reason) < 300
    assert len(caplog.records) == len(bad) + 3
