"""`proteus report`, as typed."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from proteus_spot.flows.cli.commands.inspection.report import report
from proteus_spot.infra.errors import ProteusError
from proteus_spot.infra.state.store import Store
from tests.support.job_states import JOB, record_job


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    with Store.open(f"sqlite:///{tmp_path}/state.db") as store:
        record_job(store, hours=1)
    return tmp_path


def test_it_says_where_the_report_is(directory: Path) -> None:
    done = CliRunner().invoke(report, [JOB, "--dir", str(directory)])
    assert done.exit_code == 0, done.output
    path = Path(done.output.splitlines()[-1])
    assert path == directory / "report.html"
    assert f"<title>{JOB} – Proteus report</title>" in path.read_text()


def test_output_and_database(directory: Path, tmp_path: Path) -> None:
    path = tmp_path / "here.html"
    url = f"sqlite:///{directory}/state.db"
    done = CliRunner().invoke(report, [JOB, "--database", url, "--out", str(path)])
    assert done.output == f"{path}\n"
    assert path.is_file()


def test_an_unknown_job_is_one_line_and_exit_code_2(directory: Path) -> None:
    done = CliRunner().invoke(report, ["other", "--dir", str(directory)])
    assert isinstance(done.exception, ProteusError)
    assert done.exception.exit_code == 2
    assert str(done.exception) == "job other: is not in the state database"
    assert not (directory / "report.html").exists()
