"""A job of a net has as many partitions as workers, and is refused in one line where it cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from proteus_spot.infra import extras
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.storage.blobs import Blobs
from proteus_spot.infra.urls import file_url
from proteus_spot.studies.job_spec import Training
from proteus_spot.tasks.training.application_checks import NamedApplication
from proteus_spot.tasks.training.data_checks import cut_data, partitions_of
from proteus_spot.tasks.training.job_config import job_config

NET = "from proteus_spot.nets import Net\nclass Mine(Net):\n    workers = 3\n"


def training(tmp_path: Path, text: str = NET, **fields: Any) -> Training:
    file = tmp_path / "mine.py"
    file.write_text(text)
    return Training(app="mine:Mine", code=str(file), clocks=2, seed=7, **fields)


def test_the_data_are_cut_for_the_workers_and_the_net_is_told_the_seed(tmp_path: Path) -> None:
    blobs = Blobs(file_url(tmp_path / "blobs"))
    job = training(tmp_path)
    data = cut_data(blobs, "job", job, lambda sizes: None)
    config = job_config("job", job, data, 1)
    assert (config.n_partitions, config.app_params["job_seed"], config.app_params["n_inputs"]) == (3, 7, 64)
    assert (config.app_params["job_clocks"], "job_passes" in config.app_params) == (2, False)
    Path(job.code).unlink()
    again = cut_data(blobs, "job", job, lambda sizes: None)
    assert again == data, "a job that has begun goes on without the file"


def test_other_applications_are_cut_as_asked_and_told_no_seed(tmp_path: Path) -> None:
    blobs = Blobs(file_url(tmp_path / "blobs"))
    job = Training(app="mlr", clocks=2, partitions=5)
    config = job_config("job", job, cut_data(blobs, "job", job, lambda sizes: None), 1)
    assert config.n_partitions == 5
    assert "job_seed" not in config.app_params


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"partitions": 4}, "partitions: is 4, and mine:Mine has 3 workers"),
        ({"nan": "allow"}, "nan: is allow, and mine:Mine is a net; want fail, and its setting nan = 'skip'"),
        ({"staleness": 1}, "staleness: is 1, and the workers of a net read no stale model; want 0"),
    ],
)
def test_what_a_net_cannot_have_is_refused(tmp_path: Path, fields: dict[str, Any], line: str) -> None:
    with pytest.raises(InputError, match=line):
        cut_data(Blobs(file_url(tmp_path / "blobs")), "job", training(tmp_path, **fields), lambda sizes: None)


def test_a_missing_library_is_named_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"needs torch, which is not installed: pip install 'proteus-spot\[torch\]'"):
        cut_data(
            Blobs(file_url(tmp_path / "blobs")),
            "job",
            training(tmp_path, NET.replace("Net", "TorchNet")),
            lambda sizes: None,
        )
    assert not (tmp_path / "blobs").exists()


def test_the_option_partitions_is_refused_for_a_net(tmp_path: Path) -> None:
    job = training(tmp_path)
    net = NamedApplication(job.app, job.code, {})
    assert partitions_of(net, None, 16) == 3
    with pytest.raises(InputError, match="--partitions 16: mine:Mine has 3 workers, and a partition for each"):
        partitions_of(net, 16, 16)
    assert [partitions_of(NamedApplication("mlr", "", {}), given, 16) for given in (None, 5)] == [16, 5]
