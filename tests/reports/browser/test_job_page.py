"""The report in a real browser: drawn without a complaint, what it shows is the journal's, zoom and print work."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proteus_spot.infra.state.store import Store
from proteus_spot.tasks.reports.job_report import write_report
from tests.support.chromium import CHROMIUM, MISSING, Chromium
from tests.support.html_tables import PageTables
from tests.support.job_states import HOSTILE, JOB, START_S, record_job

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(CHROMIUM is None, reason=MISSING)]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('state')}/state.db"


@pytest.fixture(scope="module")
def store(url: str) -> Iterator[Store]:
    with Store.open(url) as opened:
        record_job(opened)
        yield opened


@pytest.fixture(scope="module")
def path(url: str, store: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(JOB, database=url, output=tmp_path_factory.mktemp("page") / "report.html")


@pytest.fixture
def page(browser: Chromium, path: Path) -> Iterator[Chromium]:
    with browser.without_complaints():
        browser.open(path)
        browser.evaluate("document.getElementById('chart').scrollIntoView()")
        # The page takes a wheel that follows a scroll for a part of it; what it waits for is over after this.
        browser.evaluate("new Promise((done) => setTimeout(done, 300))")
        yield browser
    assert browser.evaluate("window.hacked") is None


def _axis(page: Chromium) -> tuple[float, float]:
    shown = page.evaluate("(({from, to}) => [from, to])(document.querySelector('#chart svg').dataset)")
    return float(shown[0]), float(shown[1])


def _plot(page: Chromium) -> tuple[float, float, float, float]:
    box = page.evaluate(
        "(({x, y, width, height}) => [x, y, width, height])(document.getElementById('plot').getBoundingClientRect())"
    )
    return box[0], box[1], box[2], box[3]


def _all(page: Chromium, selector: str, what: str) -> list[Any]:
    return list(page.evaluate(f"[...document.querySelectorAll({selector!r})].map((e) => {what})"))


def _seconds(text: str) -> int:
    hours, minutes, seconds = map(int, text.split(":"))
    return hours * 3600 + minutes * 60 + seconds


def test_it_asks_for_nothing_and_shows_what_the_journal_holds(page: Chromium, path: Path) -> None:
    data = PageTables(path.read_text()).data
    assert page.requests == [path.as_uri()]
    assert _axis(page) == (0, data["end"])
    times = {float(at) for at in _all(page, "text.time", "e.dataset.at")}
    assert min(times) == 0
    assert data["end"] - 1800 < max(times) <= data["end"]
    events = Counter(kind for _, kind, _, _ in data["events"] if kind not in ("opened", "closed"))
    marks: Counter[str] = Counter()
    for kind, count in _all(page, "path[data-kind]", "[e.dataset.kind, Number(e.dataset.count)]"):
        marks[kind] += count
    assert marks == events
    assert set(_all(page, "#panel-price path[data-market]", "e.dataset.market")) == set(data["markets"])
    bids = [row[0] for row in data["allocations"] if row[4] is not None]
    assert sorted(_all(page, "path[data-bid]", "e.dataset.bid")) == sorted(bids)
    assert set(_all(page, "#panel-footprint path", "e.dataset.tier")) == {"reliable", "transient"}
    assert set(_all(page, "#panel-stage rect", "Number(e.dataset.stage)")) == {1, 2, 3}
    assert len(_all(page, "#panel-pace path", "e.getAttribute('d')")[0].split("L")) == len(data["pace"])
    bars = _all(page, "#panel-shards rect", "[Number(e.dataset.shard), e.dataset.role, e.dataset.node]")
    told = [
        (shard, role, data["nodes"][node])
        for role, place in (("server", 1), ("backup", 2))
        for shard in (0, 1)
        for node in [m[place][shard] for m in changes_of(data["shards"], place, shard)]
        if node is not None
    ]
    assert sorted(map(tuple, bars)) == sorted(told), "a bar from change to change"
    # every mark stands where its time is on the axis
    left, _, width, _ = _plot(page)
    for kind in ("notice", "evicted"):
        at = [time for time, what, _, _ in data["events"] if what == kind]
        box = "e.getBoundingClientRect()"
        centres = _all(page, f"path[data-kind={kind}]", f"{box}.x + {box}.width / 2")
        assert centres == pytest.approx([left + time / data["end"] * width for time in at], abs=1)


def changes_of(maps: list[Any], place: int, shard: int) -> list[Any]:
    """The maps in which a shard's server, or backup, is another than in the one before."""
    return [m for n, m in enumerate(maps) if n == 0 or maps[n - 1][place][shard] != m[place][shard]]


def _journal_times(store: Store) -> dict[str, set[int]]:
    """Return when the journal says that something happened, by the kind of its mark, in seconds after the record."""
    kinds = {
        "AllocationGranted": "granted",
        "AllocationRefused": "refused",
        "NoticeSeen": "notice",
        "Renew": "renewed",
        "Lapse": "lapse",
    }
    times: dict[str, set[int]] = {}
    for entry in store.journals.entries(JOB):
        record = entry.record
        kind = kinds.get(record["kind"])
        if record["kind"] == "AllocationGone":
            kind = "evicted" if record["cause"] == "evicted" else "let go"
        if kind is not None:
            times.setdefault(kind, set()).add(round(record.get("at_s", entry.at_s)) - START_S)
    return times


def test_the_axis_is_the_journals_and_marks_stand_where_it_says(page: Chromium, store: Store) -> None:
    times = _journal_times(store)
    last_s = max(entry.record.get("at_s", 0) for entry in store.journals.entries(JOB))
    assert _axis(page) == (0, last_s - START_S)
    left, _, width, _ = _plot(page)
    box = "e.getBoundingClientRect()"
    what = f"[e.dataset.kind, Number(e.dataset.at), Number(e.dataset.count), {box}.x + {box}.width / 2]"
    seen = _all(page, "path[data-kind]", what)
    assert {kind for kind, *_ in seen} == set(times)
    for kind, at_s, count, x in seen:
        if count == 1:  # others stand for several that would cover each other
            assert at_s in times[kind]
            assert x == pytest.approx(left + at_s / (last_s - START_S) * width, abs=1)
    assert sum(count for *_, count, _ in seen if count == 1) >= len(seen) / 2
    orders = [entry for entry in store.journals.entries(JOB) if "decision" in entry.record]
    drawn = {int(at) for at in _all(page, "tbody tr.decision", "e.dataset.at")}
    assert drawn <= {round(entry.at_s) - START_S for entry in orders}
    bought = {round(entry.at_s) - START_S for entry in orders if entry.record["kind"] == "Acquire"}
    assert {int(at) for at in _all(page, "tbody tr.acquire", "e.dataset.at")} == bought


def test_hovering_tells_what_was_then(page: Chromium, store: Store) -> None:
    left, top, width, _ = _plot(page)
    for part in (0.21, 0.48, 0.83):
        page.mouse("mouseMoved", left + part * width, top + 300)
        page.settle()
        at_s = START_S + _seconds(page.evaluate("document.querySelector('#readout .when').textContent"))
        assert at_s == pytest.approx(START_S + part * _axis(page)[1], abs=15)
        ticks = [
            e.record for e in store.journals.entries(JOB) if e.record["kind"] == "TickDue" and e.record["at_s"] <= at_s
        ]
        prices, rest = (
            dict(_all(page, f"#readout table:nth-of-type({n}) tr", "[...e.children].map((td) => td.textContent)"))
            for n in (1, 2)
        )
        for market, price in ticks[-1]["prices"].items():
            assert float(prices[market].partition(" ·")[0][1:]) == pytest.approx(price / 1e6, abs=6e-5)
        spent = sum(line.amount_micros for line in store.purchases.ledger(JOB) if line.at_s <= at_s)
        assert rest["spent"] == f"${spent / 1e6:.4f}"
    page.mouse("mouseMoved", 5, 5)
    page.settle()
    assert page.evaluate("document.getElementById('readout').hidden")


def test_zoom_moves_all_panels_at_once(page: Chromium, path: Path) -> None:
    data = PageTables(path.read_text()).data
    end = data["end"]
    left, top, width, _ = _plot(page)
    page.drag(left + 0.25 * width, left + 0.5 * width, top + 120)
    low, high = _axis(page)
    assert (low, high) == (pytest.approx(0.25 * end, abs=12), pytest.approx(0.5 * end, abs=12))
    assert all(low <= float(at) <= high for at in _all(page, "text.time, path[data-kind]", "e.dataset.at"))
    inside = [event for event in data["events"] if low <= event[0] <= high]
    assert sum(_all(page, "path[data-kind]", "Number(e.dataset.count)")) == len(inside) > 0

    page.mouse("mouseWheel", left + 0.5 * width, top + 400, deltaX=0, deltaY=-240)
    page.settle()
    nearer = _axis(page)
    assert low < nearer[0] < nearer[1] < high
    assert sum(nearer) / 2 == pytest.approx((low + high) / 2, rel=1e-3)  # around the pointer
    page.mouse("mouseWheel", left + 0.5 * width, top + 400, deltaX=0, deltaY=240)
    page.settle()
    assert _axis(page) == (pytest.approx(low), pytest.approx(high))

    for clicks in (1, 2):
        for kind in ("mousePressed", "mouseReleased"):
            page.mouse(kind, left + 50, top + 50, button="left", clickCount=clicks)
    page.settle()
    assert _axis(page) == (0, end)

    page.evaluate("document.getElementById('chart').focus()")
    for key in ("+", "+"):
        page.call("Input.dispatchKeyEvent", type="keyDown", key=key, text=key)
    page.settle()
    assert _axis(page)[1] - _axis(page)[0] == pytest.approx(end * 0.36)
    page.call("Input.dispatchKeyEvent", type="keyDown", key="Escape")
    page.settle()
    assert _axis(page) == (0, end)


def test_a_wheel_that_can_only_zoom_out_scrolls_the_page(page: Chromium) -> None:
    left, top, width, _ = _plot(page)
    page.evaluate("moved = new Promise((done) => addEventListener('scroll', () => done(1), {once: true})); 0")
    page.mouse("mouseWheel", left + 0.5 * width, top + 200, deltaX=0, deltaY=200)
    assert page.evaluate("moved") == 1
    assert _axis(page)[0] == 0


def test_decisions_open_and_are_filtered(page: Chromium, path: Path) -> None:
    rows = PageTables(path.read_text()).rows("decision-table")
    seen = "tbody tr.decision:not([hidden]) td:nth-child(2)"
    assert _all(page, seen, "e.textContent") == [row[1] for row in rows]
    page.evaluate("document.querySelector('[data-verdict=wait]').click()")
    assert set(_all(page, seen, "e.textContent")) == {"acquire", "renew", "lapse"}
    page.evaluate(
        "(f => { f.value = 'JOB is done'; f.dispatchEvent(new Event('input')); })(document.getElementById('find'))"
    )
    assert _all(page, seen, "e.textContent") == ["lapse"]
    page.evaluate("(f => { f.value = ''; f.dispatchEvent(new Event('input')); })(document.getElementById('find'))")
    page.evaluate("document.querySelector('tr.acquire button[aria-expanded]').click()")
    weighed = _all(page, ".weighed tbody tr", "[...e.children].map((td) => td.textContent)")
    assert weighed[0][-1] == "chosen"
    assert len(weighed) == 9  # eight markets, and the footprint as it is
    assert all("dearer than the best" in row[-1] for row in weighed[1:8])
    page.evaluate("document.querySelector('tr.acquire td button').click()")
    page.settle()
    at = float(page.evaluate("document.querySelector('tr.acquire').dataset.at"))
    assert _axis(page)[0] <= at <= _axis(page)[1] <= at + 1000 + 900


def test_nothing_moves_while_it_is_drawn(page: Chromium) -> None:
    shifts = page.evaluate(
        """new Promise((done) => new PerformanceObserver(
             (list) => done(list.getEntries().reduce((a, e) => a + e.value, 0)))
             .observe({type: 'layout-shift', buffered: true}) || setTimeout(() => done(0), 200))"""
    )
    assert shifts < 0.01


def test_print_has_every_table(page: Chromium, path: Path, tmp_path: Path) -> None:
    page.pdf(tmp_path / "report.pdf")
    pdf = (tmp_path / "report.pdf").read_bytes()
    parsed = PageTables(path.read_text())
    bought = [row for row in parsed.data["decisions"] if row[1] == "acquire"]
    # Chromium's PDF is tagged: each table and each row is an element of its structure.
    assert len(re.findall(rb"/S /Table\b", pdf)) == len(parsed.tables) + len(bought)
    rows = sum(map(len, parsed.tables.values())) + sum(len(row[3]) + 2 for row in bought)
    candidates_rows = len(bought)  # each stands in a row of its own
    assert len(re.findall(rb"/S /TR\b", pdf)) == rows + candidates_rows
    assert page.evaluate("document.querySelectorAll('.weighed, details[open]').length") == 0  # as it was before


def test_dark_is_dark_and_narrow_is_not_wider_than_the_screen(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/state.db") as store:
        record_job(store, hours=8)
    path = write_report(JOB, directory=tmp_path)
    with Chromium(width=700, height=900) as browser:
        browser.open(path, dark=True)
        colour = browser.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        assert max(map(int, re.findall(r"\d+", colour))) < 40
        assert browser.evaluate("document.documentElement.scrollWidth") <= 700
        assert HOSTILE in browser.evaluate("document.getElementById('parameters').textContent")
        browser.call("Emulation.setDeviceMetricsOverride", width=400, height=900, deviceScaleFactor=1, mobile=False)
        browser.settle()
        assert browser.evaluate("document.documentElement.scrollWidth") <= 400
        high = "document.querySelector('{}').getBoundingClientRect().height"
        blank = browser.evaluate(f"{high.format('#chart svg')} - {high.format('#plot')}")
        assert blank < 120, "the picture fills its place"
        browser.call("Emulation.setDeviceMetricsOverride", width=700, height=900, deviceScaleFactor=1, mobile=False)
        browser.settle()
        # marks that would cover each other are one, and none is lost
        counts = _all(browser, "path[data-kind=granted]", "Number(e.dataset.count)")
        assert sum(counts) == sum(event[1] == "granted" for event in PageTables(path.read_text()).data["events"])
        assert max(counts) > 1
        assert browser.errors == []
