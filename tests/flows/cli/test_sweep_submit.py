"""`proteus sweep submit` as typed: what the Prefect server is asked to run, and what the user reads of it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import yaml
from prefect.client.schemas.objects import FlowRun
from prefect.exceptions import ObjectNotFound

import proteus_spot.tasks.training.submission
from proteus_spot.tasks.sweeps.sweep_spec import SweepSpec
from proteus_spot.tasks.training.submission import PrefectServer
from tests.support.cli_process import Outcome, inside

RUN = UUID("00000000-0000-0000-0000-0123456789ab")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a sweep; no server need be there."""

    @contextmanager
    def no_server(directory: Path | None) -> Iterator[PrefectServer]:
        yield PrefectServer("http://127.0.0.1:4200/api")

    monkeypatch.setattr(proteus_spot.tasks.training.submission, "prefect_server", no_server)
    directory = tmp_path / "here"
    directory.mkdir()
    (directory / "mine.py").write_text("def train(trial):\n    pass\n")
    described = {
        "trial": "mine:train",
        "code": "mine.py",
        "space": {"rate": {"choice": [1, 2]}},
        "metric": {"name": "loss"},
        "max_trial_steps": 5,
        "sampler": "TPESampler",
        "trials": 3,
    }
    (directory / "nightly.yaml").write_text(yaml.safe_dump(described))
    return directory


def submit(here: Path, *more: str) -> Outcome:
    return inside("sweep", "submit", "nightly.yaml", *more, cwd=here, home=here.parent / "home")


def test_the_deployment_gets_the_sweep_and_the_user_its_id(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, dict[str, Any]]] = []

    def take(name: str, parameters: dict[str, Any], flow_run_name: str, **_: Any) -> FlowRun:
        asked.append((name, json.loads(json.dumps(parameters))))
        return FlowRun(id=RUN, name=flow_run_name, flow_id=RUN)

    monkeypatch.setattr(proteus_spot.tasks.training.submission, "run_deployment", take)
    outcome = submit(here, "--json", "done.json")
    assert outcome.code == 0, outcome
    ((name, parameters),) = asked
    spec = SweepSpec.model_validate(parameters["spec"])
    assert (name, spec.code, spec.trial_count) == ("sweep/sweep", str(here / "mine.py"), 3)
    sweep_id = spec.for_run(str(RUN)).job_id
    assert sweep_id == "nightly-0123456789ab"
    assert f"sweep {sweep_id} was submitted as flow run nightly ({RUN})" in outcome.out
    assert f"to stop it: proteus sweep stop {sweep_id}" in outcome.out
    assert json.loads((here / "done.json").read_text())["sweep_id"] == sweep_id
    assert submit(here, "--sweep-id", "older").out.startswith("sweep older was submitted as flow run older")
    assert SweepSpec.model_validate(asked[1][1]["spec"]).job_id == "older"


def test_a_server_that_does_not_take_it_is_one_line(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> FlowRun:
        raise ObjectNotFound(KeyError("deployment"))

    monkeypatch.setattr(proteus_spot.tasks.training.submission, "run_deployment", refuse)
    outcome = submit(here)
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err == "proteus: deployment sweep/sweep: is not registered; run `prefect deploy --all`\n"
