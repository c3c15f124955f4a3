"""The report of a backtest in a real browser: every picture is drawn, nothing complains, it asks for nothing."""

from pathlib import Path

import pytest

from proteus_spot.reports.pages.figures_page import render
from proteus_spot.reports.pages.job_page import Table
from proteus_spot.studies.backtest.backtest_inputs import open_inputs
from proteus_spot.studies.backtest.backtest_page import page, write_report
from proteus_spot.studies.backtest.backtest_spec import NAMES
from proteus_spot.studies.backtest.job_runs import plan, run_cells
from proteus_spot.studies.backtest.result_tables import as_json
from tests.support.backtests import quiet, small_file, small_spec
from tests.support.chromium import CHROMIUM, MISSING, Chromium
from tests.support.html_tables import PageTables

FIGURES = [f"figure-{number}" for number in range(1, 7)]
HOSTILE = "<script>window.hacked=1</script>"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("report")
    spec = small_spec(small_file(here / "small.csv"))
    field = open_inputs(spec, quiet)
    runs = list(run_cells(plan(field, spec), threads=1, report=quiet))
    result = as_json(field, spec, runs, 1.0)
    write_report(here / "report.html", field, spec, runs, result)
    again = render(page(field, spec, runs, result))
    assert again == (here / "report.html").read_text(), "the same values give the same bytes"
    return here / "report.html"


def test_its_tables_have_every_figure(report: Path) -> None:
    found = PageTables(report.read_text())
    assert len(found.rows("outcomes")) == 2 * 3 * len(NAMES)
    assert ["--lambda", "60"] in found.rows("settings")
    assert [about["id"] for tag, about in found.elements if tag == "figure"] == FIGURES
    assert all(about.get("alt") for tag, about in found.elements if tag == "img")
    assert not [tag for tag, _ in found.elements if tag == "script"]


def test_what_anybody_wrote_is_text(report: Path) -> None:
    from proteus_spot.reports.pages.figures_page import BacktestPage

    text = render(BacktestPage(HOSTILE, HOSTILE, (HOSTILE,), (HOSTILE,), (), (), (Table("t", "t", (HOSTILE,), ()),)))
    assert "<script" not in text


@pytest.mark.e2e
@pytest.mark.skipif(CHROMIUM is None, reason=MISSING)
def test_it_is_drawn_and_printed_without_a_complaint(browser: Chromium, report: Path, tmp_path: Path) -> None:
    drawn = "document.readyState === 'complete' && [...document.images].every((each) => each.complete)"
    with browser.without_complaints():
        sizes = browser.visit(report.as_uri(), drawn, "[...document.images].map((each) => each.naturalWidth)")
        assert len(sizes) == len(FIGURES)
        assert all(width > 300 for width in sizes)
        assert [url for url in browser.requests if not url.startswith("data:")] == [report.as_uri()]
        assert browser.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        browser.pdf(tmp_path / "report.pdf")
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")
