"""The artifacts of a job in the Prefect UI, in both of its versions, as a browser draws them."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from prefect import flow

from bidding.engine.journal import from_record
from bidding.market.money import to_dollars
from infra.state.store import Store
from infra.storage.job_paths import JobPaths
from tasks.market.costs import CostRow, cost_rows, publish_ledger
from tasks.market.decisions import publish
from tasks.reports.publish import publish_picture, save_report
from tasks.training.follow import _ProgressBar
from tests.support.chromium import CHROMIUM, MISSING, Chromium
from tests.support.job_states import JOB, record_job
from tests.support.prefect import prefect_api
from tests.support.task_runtime import TaskRuntime, spec

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason=MISSING),
]

#: Requests of Prefect's pages to its maker, and failing ones to its API; the browser reports only their status.
_THEIRS = "Failed to load resource"


@dataclass
class Shown:
    """A Prefect server with the artifacts of a job, and the data they were made from."""

    ui_url: str
    api: httpx.Client
    store: Store
    costs: list[CostRow]
    decision: dict[str, Any]
    report_url: str

    def url(self, version: str, kind: str) -> str:
        """Return the page of the newest artifact of a kind."""
        query = {"artifacts": {"key": {"any_": [f"{kind}-{JOB}"]}}, "sort": "CREATED_DESC", "limit": 1}
        (found,) = self.api.post("/artifacts/filter", json=query).raise_for_status().json()
        return f"{self.ui_url}{version}/artifacts/artifact/{found['id']}"


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    home = tmp_path_factory.mktemp("shown")
    with prefect_api(home) as server, pytest.MonkeyPatch.context() as patch:
        runtime = TaskRuntime(home, patch)
        record_job(runtime.store)

        orders = [from_record(e.record) for e in runtime.store.journal(JOB) if e.record["kind"] == "Acquire"]
        decision = [e.record for e in runtime.store.journal(JOB) if e.record["kind"] == "Acquire"][-1]["decision"]
        job_spec = spec(JOB)

        @flow
        def show() -> str:
            bar = _ProgressBar(replace_clocks(job_spec, 1000))
            bar.show({"clock": 250, "state": "running", "elapsed_s": 1.0})
            publish(JOB, [orders[-1]])
            publish_ledger(JOB)
            url = save_report(JOB)
            publish_picture(JOB, url)
            return url

        report_url = show()
        with httpx.Client(base_url=server.api_url, timeout=20.0) as api:
            yield Shown(server.ui_url, api, runtime.store, cost_rows([JOB]), decision, report_url)
        runtime.close()


def replace_clocks(job: Any, clocks: int) -> Any:
    """Return the job with another number of clocks."""
    return job.model_copy(update={"training": job.training.model_copy(update={"clocks": clocks, "hours": None})})


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with Chromium(width=1600, height=1200) as opened:
        yield opened


@pytest.fixture(params=["", "/v2"], ids=["v1", "v2"])
def page(browser: Chromium, request: pytest.FixtureRequest) -> Iterator[tuple[Chromium, str]]:
    with browser.without_complaints(_THEIRS):
        yield browser, request.param


def test_progress(page: tuple[Chromium, str], shown: Shown) -> None:
    browser, version = page
    said = "['25%', 'clock 250, running'].every(text => document.body.innerText.includes(text))"
    browser.visit(shown.url(version, "progress"), said)


#: The texts of a table, row by row.
_CELLS = "[...document.querySelectorAll('table tr')].map(r => [...r.children].map(c => c.innerText.trim()))"


def _drawn(rows: int, blank: int = 0) -> str:
    """Return the condition that so many rows stand below the head, each with at most so many cells `blank`.

    The page makes the rows first, and writes in them later, cell by cell.
    """
    return f"(t => t.length > {rows} && t.every(row => row.filter(text => !text).length <= {blank}))({_CELLS})"


def test_the_ledger(page: tuple[Chromium, str], shown: Shown) -> None:
    browser, version = page
    head, *rows = browser.visit(shown.url(version, "ledger"), _drawn(len(shown.costs)), _CELLS)
    assert len(rows) == len(shown.costs) == 4
    drawn = [dict(zip(head, row, strict=True)) for row in rows]
    for row, cost in zip(drawn, shown.costs, strict=True):
        assert (row["market"], row["tier"]) == (cost.market, cost.tier)
        assert float(row["spent $"]) == pytest.approx(to_dollars(cost.spent))
        for use, amount in cost.uses.items():
            assert float(row[f"{use} $"]) == pytest.approx(to_dollars(amount))
    assert sum(float(row["spent $"]) for row in drawn) == pytest.approx(shown.store.spent(JOB) / 1e6)


def test_the_decision_and_what_it_was_weighed_against(page: tuple[Chromium, str], shown: Shown) -> None:
    browser, version = page
    candidates = shown.decision["candidates"]
    head, *rows = browser.visit(shown.url(version, "decision"), _drawn(min(len(candidates), 8), blank=1), _CELLS)
    drawn = [dict(zip(head, row, strict=True)) for row in rows]
    for row, candidate in zip(drawn, candidates, strict=False):
        assert (row["order"], row["reason"]) == ("Acquire", shown.decision["reason"])
        assert (row["market"], row["count"]) == (candidate["market"], str(candidate["count"]))
        assert row["why not"] == candidate["why_not"]
    assert len(drawn) == len(candidates)


def test_the_picture_is_drawn_and_says_where_the_report_is(
    page: tuple[Chromium, str], shown: Shown, tmp_path: Path
) -> None:
    browser, version = page
    mine = "[...document.images].find(i => i.src.startsWith('data:image/png'))"
    drawn = "p => p && p.complete && Math.min(p.naturalWidth, p.naturalHeight, p.getBoundingClientRect().width) > 300"
    has_report_link = f"document.body.innerText.includes({shown.report_url!r})"
    text = browser.visit(
        shown.url(version, "picture"), f"({drawn})({mine}) && {has_report_link}", "document.body.innerText"
    )
    assert shown.report_url.endswith(JobPaths(JOB).report)
    assert "base64" not in text  # a picture, and not its bytes as text
    assert Path(shown.report_url.removeprefix("file://")).read_text().startswith("<!")
