import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from proteus_spot.infra.clock import ScaledClock, SystemClock, open_clock
from proteus_spot.infra.errors import InputError
from tests.support.timeouts import PATIENCE


def test_the_system_clock_tells_real_time_and_waits() -> None:
    clock = SystemClock()
    before = time.time()
    assert before <= clock.now_s() <= time.time()
    assert clock.scale == 1.0
    assert clock.wait_until(before + 0.05) is False
    assert clock.now_s() >= before + 0.05
    assert clock.wait_until(before - 1) is False


def test_a_scaled_clock_runs_fast_from_where_it_began(tmp_path: Path) -> None:
    made_s = time.time()
    clock = ScaledClock.create(tmp_path / "clock", 1_000_000.0, 1000.0)
    first_s, read_s = clock.now_s(), time.time()
    assert 1_000_000 <= first_s <= 1_000_000 + (read_s - made_s) * 1000
    assert clock.wait_until(first_s + 50) is False
    again_s, last_s, end_s = time.time(), clock.now_s(), time.time()
    assert (again_s - read_s) * 1000 - 1 <= last_s - first_s <= (end_s - made_s) * 1000 + 1
    assert last_s - first_s >= 50


@pytest.mark.parametrize("kind", ["system", "scaled"])
def test_a_waiter_can_be_woken(tmp_path: Path, kind: str) -> None:
    clock = SystemClock() if kind == "system" else ScaledClock.create(tmp_path / "clock", 0.0, 2.0)
    wake, began = threading.Event(), time.monotonic()
    threading.Timer(0.05, wake.set).start()
    assert clock.wait_until(clock.now_s() + 1000, wake) is True
    assert time.monotonic() - began < 5 * PATIENCE
    assert clock.wait_until(clock.now_s() - 1, wake) is True


def test_a_jump_moves_every_reader_and_wakes_a_waiter(tmp_path: Path) -> None:
    path = tmp_path / "clock"
    clock, other = ScaledClock.create(path, 1000.0, 1.0), open_clock(str(path))
    assert other.scale == 1.0
    began = time.monotonic()
    threading.Timer(0.05, clock.jump_to, (50_000.0,)).start()
    assert other.wait_until(49_999.0) is False
    assert time.monotonic() - began < 5 * PATIENCE
    assert 50_000 <= other.now_s() < 50_010
    clock.jump_to(2000.0)  # never backwards
    assert other.now_s() >= 50_000
    assert [child.name for child in tmp_path.iterdir()] == ["clock"]


def test_another_process_reads_the_same_time(tmp_path: Path) -> None:
    clock = ScaledClock.create(tmp_path / "clock", 5_000.0, 10.0)
    code = "import sys; from proteus_spot.infra.clock import open_clock; print(open_clock(sys.argv[1]).now_s())"
    before = clock.now_s()
    told = float(
        subprocess.run([sys.executable, "-c", code, tmp_path / "clock"], capture_output=True, check=True).stdout
    )
    assert before <= told <= clock.now_s()


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan")])
def test_a_clock_that_would_stand_still_is_refused(tmp_path: Path, scale: float) -> None:
    with pytest.raises(InputError, match="does not move time forward"):
        ScaledClock.create(tmp_path / "clock", 0.0, scale)


@pytest.mark.parametrize("content", [None, "", "[]", "{}", json.dumps({"real_s": 1})])
def test_a_file_that_is_no_clock_is_told_in_one_line(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "clock"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InputError, match="PROTEUS_CLOCK") as caught:
        open_clock(str(path)).now_s()
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_setting_system_names_the_system_clock() -> None:
    assert isinstance(open_clock("system"), SystemClock)


def test_every_reader_goes_on_at_another_scale_from_the_time_that_it_is(tmp_path: Path) -> None:
    clock = ScaledClock.create(tmp_path / "clock", 1000.0, 100_000.0)
    reader = ScaledClock(tmp_path / "clock")
    before_s = reader.now_s()
    clock.run_at(1.0)
    then_s = reader.now_s()
    assert reader.scale == 1.0
    assert before_s <= then_s <= clock.now_s() < then_s + 1000.0
