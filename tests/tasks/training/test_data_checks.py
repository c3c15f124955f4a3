"""A job's code, from what the user names to what the nodes are told."""

from pathlib import Path
from typing import Any

import pytest

import proteus_spot.tasks.training.running_controller
from proteus_spot.infra.datasets.prepare import DataSummary
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.storage.job_paths import JobPaths
from proteus_spot.studies.job_spec import JobSpec
from proteus_spot.tasks.job_records import record_job
from proteus_spot.tasks.training.application_checks import check_application
from proteus_spot.tasks.training.preparation import check, job_code, prepare_code
from proteus_spot.tasks.training.running_controller import start_training
from tests.support.task_runtime import TaskRuntime, plain, spec

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "kmeans.py"


def with_app(app: str, code: str) -> JobSpec:
    job = spec()
    return job.model_copy(update={"training": job.training.model_copy(update={"app": app, "code": code})})


@pytest.mark.parametrize(
    ("app", "code", "says"),
    [
        ("mlp", "", "app 'mlp': is not known; use one of .*mlr.*, or module:Class"),
        ("mlp", "mlp.py", "app 'mlp': is not known"),
        ("kmeans:KMeans", "nowhere/kmeans.py", r"code nowhere/kmeans\.py: cannot be read: No such file"),
        ("kmeans:KMedians", str(EXAMPLE), r"has no KMedians of app kmeans:KMedians; its classes are KMeans"),
    ],
)
def test_a_job_whose_code_cannot_run_is_refused_before_it_is_recorded(
    here: TaskRuntime, app: str, code: str, says: str
) -> None:
    for refuse in (plain(check), lambda job: check_application(job.training), plain(prepare_code)):
        with pytest.raises(InputError, match=says):
            refuse(with_app(app, code))
    assert here.store.jobs.list_jobs() == []
    assert here.runtime.blobs.list() == []


def test_code_is_prepared_once_and_a_running_job_keeps_it(here: TaskRuntime, tmp_path: Path) -> None:
    mine = tmp_path / "kmeans.py"
    mine.write_text(EXAMPLE.read_text())
    job = with_app("kmeans:KMeans", str(mine))
    plain(check)(job)
    assert here.runtime.blobs.list() == []
    plain(record_job)(job)
    digest = plain(prepare_code)(job)
    assert digest == plain(prepare_code)(job) == job_code("job")
    assert [name.rpartition("/")[2] for name in here.runtime.blobs.list(JobPaths("job").code)] == [
        "kmeans.py",
        "manifest.json",
    ]
    mine.write_text(EXAMPLE.read_text() + "# edited\n")
    plain(check)(job)  # it runs already
    with pytest.raises(InputError, match=f"job job began with code {digest[:12]}, and this is"):
        plain(prepare_code)(job)
    mine.unlink()
    assert plain(prepare_code)(job) == digest
    assert job_code("other") == ""


def test_whoever_starts_the_training_hands_on_the_digest(
    here: TaskRuntime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = with_app("kmeans:KMeans", str(EXAMPLE))
    plain(record_job)(job)
    told: list[dict[str, Any]] = []

    class Asked(Exception):
        """Far enough."""

    class Client:
        def __init__(self, *place: Any) -> None:
            pass

        def start(self, config: dict[str, Any], *waits: Any) -> dict[str, Any]:
            told.append(config)
            raise Asked

    monkeypatch.setattr(proteus_spot.tasks.training.running_controller, "ControllerClient", Client)
    data = DataSummary("digits", "file:///data", 2, 10, 2, {"n_inputs": 3, "n_classes": 2, "n_examples": 10})
    digest = plain(prepare_code)(job)
    with pytest.raises(Asked):
        plain(start_training)(job, "tcp://controller", data, 0.0)
    assert told[0]["code_sha256"] == digest
    assert told[0]["app_params"] == {"n_inputs": 3, "n_classes": 2, "n_examples": 10}
