"""The benchmark of nets, at a size that says nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed: `make torch`")

from proteus_spot.benchmarks.nets import defaults, kills, large, links, overhead, quality, same, scale, traffic
from proteus_spot.nets import Net

pytestmark = [pytest.mark.slow, pytest.mark.e2e]


def test_all_parameters_have_the_bits_of_bare_diloco(tmp_path: Path) -> None:
    (found,) = same.run(tmp_path, clocks=3, steps=2)
    assert found.ours == found.beside > 50_000


def test_overhead_and_bytes_are_measured(tmp_path: Path) -> None:
    beyond, moved = overhead.run(tmp_path, [(1_000, 1.0)], clocks=3)
    assert beyond.beside == 2.5
    assert 0 < moved.ours < moved.beside


def test_repeated_steps_stand_beside_what_the_kills_leave(tmp_path: Path) -> None:
    limit, hit, same, peer = kills.run(tmp_path, rates=(360,), seconds=20)
    assert 1 <= limit.beside <= limit.ours < 4
    assert hit.beside == 5
    assert same.ours == same.beside == 1024
    assert peer.ours == limit.ours
    assert peer.beside >= 1


def test_no_script_kills_the_last_transient_node() -> None:
    script = kills.script(120, 300)
    assert script.startswith("second:30,kill,t1\nsecond:60,kill,t2\nsecond:70,join,t4\nsecond:90,kill,t3\n")
    alive = 3
    for line in script.splitlines():
        alive += 1 if "join" in line else -1
        assert alive >= 1


def test_a_loss_stands_beside_that_of_synchronous_training(tmp_path: Path) -> None:
    for found in quality.run(tmp_path, steps=3):
        assert 0 < found.ours < 6
        assert 0 < found.beside < 6


def test_bytes_are_measured_by_what_is_pushed_and_kept(tmp_path: Path) -> None:
    whole, rounded, kept = traffic.run(tmp_path, 100_000, 3)
    assert rounded.ours < whole.ours < kept.ours


def test_the_speed_stands_beside_the_ideal(tmp_path: Path) -> None:
    one, two = scale.run(tmp_path, (1, 2), 3, 0.1)
    assert one.beside == 2 * two.beside == 0.8


def test_a_server_of_a_large_table_is_measured(tmp_path: Path) -> None:
    clock, memory, *_ = large.run(tmp_path, 100_000, 3)
    assert clock.ours > 0
    assert memory.ours * 1e9 > 10e6


def test_links_say_why_they_are_not_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "lacking", lambda: "needs root")
    (found,) = links.run(tmp_path)
    assert (found.valid, found.note) == (False, "not measured: needs root")


def test_the_table_of_defaults_tries_each_setting_once() -> None:
    for steps in (600, 1000, 3000):
        made = [str(sorted(setting.items())) for setting in defaults.settings(steps)]
        assert len(set(made)) == len(made)
    text = b"a few words " * 400
    losses = [defaults.tried(text, 3, {"rate": 0.01} | setting) for setting in list(defaults.settings())[7:9]]
    assert all(0 < loss < 6 for loss in losses)


def test_a_table_that_was_interrupted_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "text").write_bytes(b"a few words " * 400)
    made: list[Any] = []

    def tried(text: bytes, steps: int, setting: dict[str, Any]) -> float:
        if len(made) == 2:
            made.append("interrupted")
            raise KeyboardInterrupt
        made.append(setting["local_steps"])
        return 2.0 + len(made) / 10

    monkeypatch.setattr(defaults, "tried", tried)
    monkeypatch.setattr(defaults, "together", lambda text, steps, rate: 2 + rate)
    words = [str(tmp_path / "text"), "--out", str(tmp_path / "table"), "--steps", "1000"]
    with pytest.raises(KeyboardInterrupt):
        defaults.main(words)
    defaults.main(words)
    table = json.loads((tmp_path / "table").read_text())
    assert len(made) == 1 + len(list(defaults.settings(1000))), "none is made again"
    assert table["together"] == {"0.012": 2.012, "0.006": 2.006, "0.024": 2.024}
    assert table["settings"][0]["above_together"] == round(2.1 / 2.006 - 1, 4), "beside the best rate"


@pytest.mark.parametrize("path", sorted(Path(defaults.__file__).parent.glob("defaults_*.json")))
def test_a_longer_table_has_what_the_script_tries(path: Path) -> None:
    table = json.loads(path.read_text())
    tried = [dict(setting, outer=list(setting["outer"])) for setting in defaults.settings(table["steps"])]
    rows = [{name: row[name] for name in row if name not in ("loss", "above_together")} for row in table["settings"]]
    assert all(row in tried for row in rows)
    assert set(table["together"]) <= set(map(str, defaults.LONG_RATES))


def test_the_defaults_follow_from_the_table() -> None:
    table = json.loads((Path(defaults.__file__).parent / "defaults.json").read_text())
    tried = [dict(setting, outer=list(setting["outer"])) for setting in defaults.settings()]
    lost = {}
    for row in table["settings"]:
        setting = {name: row[name] for name in row if name not in ("loss", "above_together")}
        assert setting in tried
        if "workers" in setting or "moments" in setting:
            continue
        lost[setting.get("warm_steps", 0), setting["local_steps"], tuple(setting["outer"])] = row["loss"]
    for (warm, local, _), loss in lost.items():
        net = Net(local_steps=local, warm_steps=warm)
        default = lost[warm, local, (net.outer_rule.lr, net.outer_rule.momentum)]
        assert default <= 1.01 * loss, "a velocity, which takes a server's memory, has to gain more"
