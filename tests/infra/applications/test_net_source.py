"""Whether an application is a net, and how many workers it has, is read from its text; nothing of it is run."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pytest

from proteus_spot.infra.applications.net_source import NetSource, net_source
from proteus_spot.infra.errors import InputError

TORCH = NetSource(8, "torch")


def found(tmp_path: Path, text: str, app: str = "mine:Mine", **params: Any) -> NetSource | None:
    file = tmp_path / "mine.py"
    file.write_text("raise SystemExit('it was run')\n" + text)
    return net_source(app, str(file), params)


@pytest.mark.parametrize(
    ("text", "net"),
    [
        ("from proteus_spot.nets import TorchNet\nclass Mine(TorchNet): pass", TORCH),
        ("from proteus_spot.nets import TorchNet as Base\nclass Mine(Base):\n    workers = 4", NetSource(4, "torch")),
        ("from proteus_spot.nets import Net\nclass Mine(Net):\n    workers: int = 3", NetSource(3, "")),
        (
            "from proteus_spot import nets\nclass Mine(nets.TorchNet):\n    local_steps, workers = 9, 2",
            NetSource(2, "torch"),
        ),
        ("import proteus_spot.nets as n\nclass Mine(n.TorchNet): pass", TORCH),
        (
            "from proteus_spot.nets import TorchNet\nclass Base(TorchNet):\n    workers = 5\nclass Mine(Base): pass",
            NetSource(5, "torch"),
        ),
        ("class TorchNet: pass\nclass Mine(TorchNet): pass", None),
        ("from nets import TorchNet\nclass Mine(TorchNet): pass", None),
        ("class Mine(Mine): pass", None),
        ("import abc\nclass Mine(abc.ABC): pass", None),
    ],
)
def test_a_net_is_known_by_its_base(tmp_path: Path, text: str, net: NetSource | None) -> None:
    assert found(tmp_path, text) == net


def test_a_parameter_of_the_job_comes_first(tmp_path: Path) -> None:
    text = "from proteus_spot.nets import TorchNet\nclass Mine(TorchNet):\n    workers = 4"
    assert found(tmp_path, text, workers=16) == NetSource(16, "torch")
    assert found(tmp_path, f"{text}\n    threads = 2") == NetSource(4, "torch", 2)


@pytest.mark.parametrize(("value", "named"), [("0", "0"), ("K", "'K'"), ("2 * 4", "'2 \\* 4'"), ("'8'", "'8'")])
def test_workers_that_are_no_whole_number_are_refused(tmp_path: Path, value: str, named: str) -> None:
    text = f"from proteus_spot.nets import TorchNet\nclass Mine(TorchNet):\n    workers = {value}"
    with pytest.raises(InputError, match=f"workers is {named}: write a whole number from 1"):
        found(tmp_path, text)


def test_a_net_in_a_wheel_and_an_installed_one_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "from proteus_spot.nets import TorchNet\nclass Mine(TorchNet): workers = 6"
    wheel = tmp_path / "mine-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("mine/deep.py", text)
        archive.writestr("mine/__init__.py", "")
    assert net_source("mine.deep:Mine", str(wheel), {}) == NetSource(6, "torch")
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "deep.py").write_text(text)
    (tmp_path / "there" / "__init__.py").write_text("raise SystemExit('it was run')")
    monkeypatch.syspath_prepend(tmp_path)
    assert net_source("there.deep:Mine", "", {}) == NetSource(6, "torch")
    assert net_source("nowhere:Mine", "", {}) is net_source("mlr", "", {}) is None
