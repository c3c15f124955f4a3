"""The backtest as a flow: what is shown in the UI, and what goes to the blobs."""

import json
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from prefect import Flow

from proteus_spot.flows.backtest import backtest
from proteus_spot.studies.backtest.backtest_spec import BacktestSpec
from proteus_spot.studies.backtest.comparison import Comparison
from proteus_spot.tasks import backtest_artifacts as artifacts
from proteus_spot.tasks.backtest_artifacts import compare, publish_pictures, publish_table
from tests.support.backtests import small_file, small_spec
from tests.support.html_tables import PageTables
from tests.support.task_runtime import TaskRuntime, plain


class Shown:
    """What was to be shown in the UI."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.all: dict[str, Any] = {}
        self.progress: list[float] = []
        patch.setattr(artifacts, "create_table_artifact", self._take)
        patch.setattr(artifacts, "create_markdown_artifact", self._take)
        patch.setattr(artifacts, "create_progress_artifact", self._begin)
        patch.setattr(artifacts, "update_progress_artifact", self._update)

    def _take(self, content: Any, key: str, description: str) -> None:
        self.all[key] = content

    def _begin(self, percent: float, key: str, description: str) -> UUID:
        self.progress.append(percent)
        return uuid4()

    def _update(self, artifact: UUID, percent: float, description: str) -> None:
        self.progress.append(percent)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Shown:
    monkeypatch.chdir(tmp_path)
    return Shown(monkeypatch)


@pytest.fixture
def spec(tmp_path: Path) -> BacktestSpec:
    return small_spec(small_file(tmp_path / "small.csv"), schemes=["on-demand", "proteus"], starts=4)


@pytest.fixture
def compared(shown: Shown, spec: BacktestSpec) -> Comparison:
    found: Comparison = plain(compare)(spec)
    return found


def test_the_table_has_a_row_for_each_run(shown: Shown, compared: Comparison) -> None:
    plain(publish_table)(compared)
    rows = shown.all["backtest-table"]
    assert [(row["scheme"], row["zone"], row["hours"]) for row in rows] == [
        (run["scheme"], run["zone"], run["hours"]) for run in compared.result["runs"]
    ]
    assert all(not isinstance(value, dict) for row in rows for value in row.values())
    assert rows[0]["relative_cost_mean"] == 1.0


def test_the_interval_of_checkpoints_is_that_of_the_fit(shown: Shown, spec: BacktestSpec) -> None:
    asked = spec.model_copy(update={"checkpoint_interval": "mean-time", "schemes": ["standard+checkpoint"]})
    found: Comparison = plain(compare)(asked)
    assert "a checkpoint every" in found.field.notes[-1]
    (record,) = found.result["settings"]["elasticity"]
    assert record["interval_s"] == found.spec.elasticities[1].interval_s != 1800


def test_the_pictures_and_where_the_report_is(here: TaskRuntime, shown: Shown, compared: Comparison) -> None:
    plain(publish_pictures)(compared)
    text = shown.all["backtest-picture"]
    assert text.count("](data:image/png;base64,iVBOR") == 2
    assert len(text) < 250_000
    url = text.split("`")[1]
    page = here.runtime.blobs.read_bytes(url.split("/blobs/")[1]).decode()
    assert len(PageTables(page).rows("outcomes")) == len(compared.result["runs"])
    assert "fit on the first two thirds" in text


def test_how_far_it_is_is_shown_to_the_end(shown: Shown, compared: Comparison) -> None:
    assert shown.progress[-1] == 100
    assert all(0 <= percent <= 100 for percent in shown.progress)


def test_the_flow_does_what_the_verb_does(
    here: TaskRuntime, shown: Shown, spec: BacktestSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, task in (("compare", compare), ("publish_table", publish_table), ("publish_pictures", publish_pictures)):
        monkeypatch.setattr(f"proteus_spot.flows.backtest.{name}", plain(task))
    assert isinstance(backtest, Flow)
    assert backtest.name == "backtest"
    result = backtest.fn(spec)
    assert json.loads(json.dumps(result))["runs"] == result["runs"]
    assert set(shown.all) == {"backtest-table", "backtest-picture"}


def test_the_form_offers_the_fields_with_their_bounds() -> None:
    schema = backtest.parameters.model_dump()["definitions"]["BacktestSpec"]["properties"]
    assert schema["starts"]["minimum"] == 1
    assert schema["prices"]["title"] == "Price file"
    assert schema["prices"]["position"] == 0
