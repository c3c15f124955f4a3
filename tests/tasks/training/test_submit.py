"""Jobs as a list shows them; a job's file; a job's end."""

from pathlib import Path

import pytest

from bidding.billing import Flat, PerSecondFirstHourFree, Repricing
from infra.errors import InputError, ProteusError
from infra.state.records import UnknownRecord
from tasks.market.engine_journal import JobEngine
from tasks.market.opening import close_job, job_model
from tasks.reports.job_list import job_lines
from tasks.training.submit import read_job, stop
from tests.support.task_runtime import TaskRuntime, plain, spec

GOOD = """
job_id: mine
training: {app: mlr, data: digits, clocks: 10}
transient: {markets: [c4.large/us-east-1a]}
"""


def test_a_job_is_a_line(here: TaskRuntime) -> None:
    here.begin(spec())
    here.tick(spec())
    (line,) = job_lines()
    assert (line.job_id, line.state, line.machines, line.evictions) == ("job", "starting", 3, 0)
    assert line.spent_micros == here.store.spent("job")


def test_a_job_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(GOOD)
    assert read_job(path).job_id == "mine"


def test_a_path_of_data_or_code_is_made_absolute_for_who_works_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "job.yaml"
    for given, told in (("in/mine.csv", str(tmp_path / "in/mine.csv")), ("s3://b/mine.csv", "s3://b/mine.csv")):
        path.write_text(GOOD.replace("digits", given))
        assert read_job(path).training.data == told
        path.write_text(GOOD.replace("app: mlr", f"app: mine:App, code: {given}"))
        assert read_job(path).training.code == told
    assert read_job(path).job_id == "mine"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (None, "cannot be read"),
        ("a: [", "is not YAML"),
        ("- a", "holds no job"),
        (GOOD.replace("mine", "Mine!"), "job_id"),
        (GOOD.replace("clocks: 10", "clocks: 0"), "training.clocks"),
        (GOOD.replace(", clocks: 10", ""), "training"),
        (GOOD + "colour: red\n", "colour"),
    ],
)
def test_a_bad_job_file_is_one_line_that_names_the_place(tmp_path: Path, text: str | None, place: str) -> None:
    path = tmp_path / "job.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError, match=place) as caught:
        read_job(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_stopping(here: TaskRuntime) -> None:
    with pytest.raises(UnknownRecord):
        stop("nobody", "because")
    here.begin(spec())
    with pytest.raises(ProteusError, match="no controller yet"):
        stop("job", "because")
    plain(close_job)(JobEngine("job"), {"clocks": 3})
    assert "ended before: finished" in stop("job", "because")


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        (
            "billing: free",
            r"transient\.billing: Input should be 'hourly-refund', 'per-second-first-hour-free' or 'flat'",
        ),
        (
            "billing: flat",
            r"transient\.flat_price: .*billing flat: needs a price; give flat_price USD, per instance-hour",
        ),
        ("billing: flat, flat_price: dear", r"transient\.flat_price: .*flat_price dear: is not a number"),
        ("flat_price: 0.03", r"flat_price 0\.03: is for billing flat, not for hourly-refund; leave it out"),
        ("billing: flat, flat_price: 1, reprice: hour", r"reprice hour: is for billing per-second-first-hour-free"),
    ],
)
def test_a_billing_model_that_is_none_is_refused_in_one_line(tmp_path: Path, fields: str, complaint: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(GOOD.replace("us-east-1a]", f"us-east-1a], {fields}"))
    with pytest.raises(InputError, match=complaint) as caught:
        read_job(path)
    assert "\n" not in str(caught.value)


def test_a_job_file_says_how_machines_are_charged_and_its_rules_go_by_it(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(GOOD.replace("us-east-1a]", "us-east-1a], billing: flat, flat_price: 0.0301"))
    asked = read_job(path)
    assert asked.transient.billing_model == Flat(30_100)
    assert job_model(asked, 240).hour_micros(99) == 30_100
    path.write_text(GOOD.replace("us-east-1a]", "us-east-1a], billing: per-second-first-hour-free, reprice: change"))
    asked = read_job(path)
    assert asked.transient.billing_model == PerSecondFirstHourFree(Repricing.CHANGE)
    assert job_model(asked, 240).billing == "per-second-first-hour-free"
