"""The page of a job in the Prefect UI, in both of its versions, as a browser draws it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest
from prefect import flow

from proteus_spot.bidding.market.money import usd
from proteus_spot.infra.state.store import Store
from proteus_spot.tasks.job_pages import page_url
from proteus_spot.tasks.market.costs import CostRow, cost_rows
from proteus_spot.tasks.reports.publish import link_page, publish_page, save_report
from tests.support.chromium import CHROMIUM, MISSING, Chromium
from tests.support.job_states import JOB, record_job
from tests.support.prefect import prefect_api
from tests.support.task_runtime import TaskRuntime
from tests.support.timeouts import PATIENCE

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason=MISSING),
]

#: Requests of Prefect's pages to its maker, and failing ones to its API; the browser reports only their status.
_THEIRS = "Failed to load resource"


@dataclass
class Shown:
    """A Prefect server with the page of a job, and the data it was made from."""

    ui_url: str
    api: httpx.Client
    store: Store
    costs: list[CostRow]
    decision: dict[str, Any]
    report_url: str
    page_url: str

    def url(self, version: str) -> str:
        """Return the address of the job's page in a version of the UI."""
        return self.page_url.replace(self.ui_url, f"{self.ui_url}{version}")


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    home = tmp_path_factory.mktemp("shown")
    with prefect_api(home) as server, pytest.MonkeyPatch.context() as patch:
        runtime = TaskRuntime(home, patch)
        record_job(runtime.store)

        decision = [e.record for e in runtime.store.journals.entries(JOB) if e.record["kind"] == "Acquire"][-1][
            "decision"
        ]

        @flow
        def show() -> str:
            link_page(JOB)
            publish_page(JOB, "as it was before")
            url = save_report(JOB)
            publish_page(JOB, url)
            return url

        report_url = show()
        with httpx.Client(base_url=server.api_url, timeout=20.0 * PATIENCE) as api:
            pages = api.post("/artifacts/filter", json={}).raise_for_status().json()
            assert len(pages) == 1, "one page, changed in place"
            yield Shown(
                server.ui_url,
                api,
                runtime.store,
                cost_rows([JOB]),
                decision,
                report_url,
                page_url(UUID(pages[0]["id"])),
            )
        runtime.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with Chromium(width=1600, height=1200) as opened:
        yield opened


@pytest.fixture(params=["", "/v2"], ids=["v1", "v2"])
def page(browser: Chromium, request: pytest.FixtureRequest) -> Iterator[tuple[Chromium, str]]:
    with browser.without_complaints(_THEIRS):
        yield browser, request.param


#: The texts of all tables, row by row.
_CELLS = "[...document.querySelectorAll('table tr')].map(r => [...r.children].map(c => c.innerText.trim()))"
_PICTURE = "[...document.images].find(i => i.src.startsWith('data:image/png'))"
_DRAWN = "p => p && p.complete && Math.min(p.naturalWidth, p.naturalHeight, p.getBoundingClientRect().width) > 300"


def test_the_whole_job_is_on_the_page(page: tuple[Chromium, str], shown: Shown) -> None:
    browser, version = page
    ready = f"({_DRAWN})({_PICTURE}) && document.body.innerText.includes({shown.report_url!r})"
    read = f"({{text: document.body.innerText, cells: {_CELLS}}})"
    seen = browser.visit(shown.url(version), ready, read)
    assert "job-1: finished" in seen["text"]
    assert "proteus cost job-1" in seen["text"]
    assert "as it was before" not in seen["text"], "the page is changed in place"
    assert "base64" not in seen["text"]  # a picture, and not its bytes as text
    assert Path(shown.report_url.removeprefix("file://")).read_text().startswith("<!")
    rows = seen["cells"]
    for cost in shown.costs:
        (row,) = [row for row in rows if row[:2] == [cost.market, cost.tier]]
        assert row[3] == usd(cost.spent)
    assert [usd(shown.store.purchases.spent(JOB)) in row for row in rows].count(True) >= 1
    for candidate in shown.decision["candidates"][:8]:
        assert any(row[:2] == [candidate["market"], str(candidate["count"])] for row in rows)
