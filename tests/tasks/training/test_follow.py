"""Following a job needs no Prefect server: what shows its progress may fail."""

import logging

import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from infra.local.prefect_server import free_port
from tasks.training.follow import _ProgressBar
from tests.support.task_runtime import TaskRuntime, spec


@pytest.mark.filterwarnings("ignore:Artifact creation outside:FutureWarning")
def test_a_server_that_is_away_ends_no_following(here: TaskRuntime, caplog: pytest.LogCaptureFixture) -> None:
    status = {"clock": 1, "state": "running", "elapsed_s": 1.0}
    nobody = temporary_settings({PREFECT_API_URL: f"http://127.0.0.1:{free_port()}/api"})
    with nobody, caplog.at_level(logging.WARNING, "tasks.training.follow"):
        bar = _ProgressBar(spec())
        bar.show(status)
        bar.finish()
    assert [line.startswith("progress was not shown: ") for line in caplog.messages] == [True, True]
