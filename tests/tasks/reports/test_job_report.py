"""The report says what journal, ledger and observations hold: no more, no less."""

from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proteus_spot.infra.errors import InputError
from proteus_spot.infra.state.records import JobState, LedgerKind, ObservationKind, UnknownRecord
from proteus_spot.infra.state.store import Store
from proteus_spot.reports.pages.job_page import Link, render
from proteus_spot.reports.pages.job_series import MOST_CANDIDATES, on_demand_reference, thin
from proteus_spot.tasks.local_market.run_environment import record_command
from proteus_spot.tasks.reports.job_report import gather, read_facts, write_report
from tests.support.html_tables import PageTables
from tests.support.job_states import HOSTILE, JOB, MARKETS, START_S, record_job


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('state')}/state.db"


@pytest.fixture(scope="module")
def store(url: str) -> Iterator[Store]:
    with Store.open(url) as opened:
        record_job(opened)
        yield opened


@pytest.fixture(scope="module")
def page(store: Store) -> PageTables:
    return PageTables(render(gather(store, JOB)))


def _records(store: Store, *kinds: str) -> list[Any]:
    return [entry for entry in store.journals.entries(JOB) if entry.record["kind"] in kinds]


def _step(pairs: list[list[Any]], at: float) -> Any:
    held = [value for time, value in pairs if time <= at]
    return held[-1] if held else None


def test_prices_are_those_of_every_tick(store: Store, page: PageTables) -> None:
    ticks, data = _records(store, "TickDue"), page.data
    assert data["ticks"] == [entry.record["at_s"] - START_S for entry in ticks]
    assert sorted(data["markets"]) == sorted(map(str, MARKETS))
    absent = 0
    for index, market in enumerate(data["markets"]):
        for entry in ticks:
            price = entry.record["prices"].get(market)
            absent += price is None
            assert _step(data["prices"][index], entry.record["at_s"] - START_S) == price
    assert absent > 3  # a market without a price is told from one whose price stays


def test_marks_are_what_happened(store: Store, page: PageTables) -> None:
    found = Counter(kind for _, kind, _, _ in page.data["events"])
    counts = Counter(entry.record["kind"] for entry in store.journals.entries(JOB))
    gone = Counter(entry.record["cause"] for entry in _records(store, "AllocationGone"))
    lapses = {entry.record["allocation_id"] for entry in _records(store, "Lapse")}
    assert counts["Lapse"] == 2
    assert found == {
        "opened": 1,
        "closed": 1,
        "granted": counts["AllocationGranted"],
        "refused": counts["AllocationRefused"],
        "notice": counts["NoticeSeen"],
        "renewed": counts["Renew"],
        "lapse": len(lapses),  # said twice, shown once
        "evicted": gone["evicted"],
        "let go": gone["user"],
    }
    assert min(found.values()) >= 1
    assert len(page.rows("marks")) == found.total()
    times = {(entry.record["at_s"] - START_S) for entry in _records(store, "AllocationGone")}
    assert {at for at, kind, _, _ in page.data["events"] if kind in ("evicted", "let go")} == times


def test_decisions_are_those_of_the_journal(store: Store, page: PageTables) -> None:
    orders, seen = [], set()
    for entry in _records(store, "Acquire", "Renew", "Lapse", "Wait"):
        record = entry.record
        name = record.get("order_id") or (record["kind"], record.get("allocation_id"), record.get("hour"))
        if record["kind"] == "Wait" or name not in seen:
            orders.append(entry)
        seen.add(name)
    data = page.data
    assert [row[:2] for row in data["decisions"]] == [
        [entry.at_s - START_S, entry.record["decision"]["verdict"]] for entry in orders
    ]
    for row, entry in zip(data["decisions"], orders, strict=True):
        decision = entry.record["decision"]
        if decision["cost_per_work"] is None:
            assert row[2] is None
        else:
            assert row[2] == pytest.approx(decision["cost_per_work"], rel=1e-3)
        assert row[4] == 0
        for shown, candidate in zip(row[3], decision["candidates"], strict=True):
            market, count, price, delta, beta, each, why = shown
            assert data["markets"][market] == candidate["market"]
            assert [count, price, delta] == [candidate[k] for k in ("count", "price_micros", "delta_micros")]
            assert beta == pytest.approx(candidate["eviction_prob"], rel=1e-2)
            assert each == pytest.approx(candidate["cost_per_work"], rel=1e-3)
            assert data["texts"][why] == candidate["why_not"]
    assert max(row[5] for row in data["decisions"]) == 2  # ordered again until it was answered


def test_the_table_of_decisions_folds_only_what_said_the_same(store: Store, page: PageTables) -> None:
    rows = page.rows("decision-table")
    said = [entry.record["decision"]["reason"] for entry in _records(store, "Acquire", "Renew", "Lapse", "Wait")]
    folded = [row for row in rows if "(repeated 2 times)" in row[4]]
    assert len(folded) == 2
    assert {row[1] for row in folded} == {"wait"}
    assert {row[5] for row in folded} == {"–"}
    again = sum("(ordered 2 times)" in row[4] for row in rows)
    assert len(rows) == len(said) - len(folded) - again
    assert {row[4].partition(" (repeated")[0].partition(" (ordered")[0] for row in rows} == set(said)


def _micros(text: str) -> int:
    return int(Decimal(text.replace("$", "").replace(",", "")) * 1_000_000)


def test_the_ledger_adds_up(store: Store, page: PageTables) -> None:
    lines = store.purchases.ledger(JOB)
    *rows, foot = page.rows("ledger")
    assert [(_micros(row[6]), row[4]) for row in rows] == [(line.amount_micros, str(line.kind)) for line in lines]
    assert _micros(foot[6]) == store.purchases.spent(JOB) == sum(_micros(row[6]) for row in rows)
    assert [row[5] for row in page.data["ledger"]] == [line.amount_micros for line in lines]
    *groups, total = page.rows("by-market")
    assert len(groups) == 4
    for column in (3, 5, 6):
        assert sum(_micros(row[column]) for row in groups) == _micros(total[column])
    refunds = sum(line.amount_micros for line in lines if line.kind is LedgerKind.REFUND)
    assert _micros(total[5]) == refunds < 0
    assert all(_micros(row[3]) + _micros(row[5]) == _micros(row[6]) for row in [*groups, total])
    assert sum(int(row[2]) + int(row[4]) for row in groups) == len(lines)


def test_allocations_and_progress(store: Store, page: PageTables) -> None:
    data = page.data
    for row, record in zip(data["allocations"], store.purchases.allocations(JOB), strict=True):
        a = record.allocation
        assert row[0] == a.allocation_id
        assert data["markets"][row[1]] == str(a.market)
        assert row[3:7] == [a.count, a.bid_micros, a.launched_at_s - START_S, record.ended_at_s - START_S]
    looks = store.jobs.observations(JOB, ObservationKind.PROGRESS)
    learned = [look for look in looks if look.payload["clock"]]
    assert len(data["progress"]) == len(learned)
    for row, look in zip(data["progress"], learned, strict=True):
        loss = look.payload["loss"]
        assert row[:2] == [round(look.at_s - START_S), look.payload["clock"]]
        assert row[2] == (None if loss is None else pytest.approx(loss, rel=1e-4))
    for look in looks:
        assert _step(data["stage"], round(look.at_s - START_S)) == look.payload["stage"]
    told = [look.payload["seconds_per_clock"] for look in looks if look.payload["seconds_per_clock"] is not None]
    assert [ms for _, ms in data["pace"]] == pytest.approx([seconds * 1e3 for seconds in told], rel=1e-3)
    for row, seen in zip(data["shards"], store.jobs.observations(JOB, ObservationKind.SHARDS), strict=True):
        names = [[None if node is None else data["nodes"][node] for node in of] for of in row[1:]]
        assert (row[0], names) == (
            round(seen.at_s - START_S),
            [seen.payload["servers"], seen.payload["backups"]],
        )


def test_on_demand_costs_what_the_held_vcpus_would_have(store: Store) -> None:
    facts = read_facts(store, JOB)
    until_s = facts.job.ended_at_s
    assert until_s is not None
    vcpus = {"c4.large": 2, "c4.xlarge": 4}
    hours = sum(
        (min(r.ended_at_s or until_s, until_s) - r.allocation.launched_at_s)
        / 3600
        * vcpus[r.allocation.market.instance_type]
        for r in facts.allocations
    )
    line = on_demand_reference(facts)
    # the cheapest per vCPU of the two types: 209000 / 4 < 105000 / 2
    assert line[-1] == (until_s, pytest.approx(hours * 209_000 / 4))
    assert [cost for _, cost in line] == sorted(cost for _, cost in line)


def test_whoever_wrote_it_text_stays_text(page: PageTables) -> None:
    assert dict(page.rows("parameters"))["training.note"] == HOSTILE
    assert any(HOSTILE in row[3] for row in page.rows("marks"))
    assert [tag for tag, _ in page.elements].count("script") == 2
    assert "img" not in [tag for tag, _ in page.elements]


def test_series_are_drawn_and_not_written_out(tmp_path: Path) -> None:
    series = {
        "seconds_by_clock": [0.25, 0.5],
        "stage_by_clock": [1, 2],
        "metrics_by_clock": [[1, {"accuracy": 0.5}]],
        "timeline": [{"second": 0.0, "clock": 0, "stage": 1, "nodes": {"i-1": ["reliable", "ready"]}}],
    }
    back = [{"clock": 3, "reason": "two nodes were lost"}, {"clock": 5, "reason": "again"}]
    with Store.open(f"sqlite:///{tmp_path}/state.db") as store:
        store.jobs.create_job("long", {"training": {"data": "digits"}}, START_S)
        result = {"clocks": 2, **series, "went_back": back, "micro_tasks_done": {"reliable": 4}}
        store.jobs.move_job("long", JobState.FINISHED, START_S + 9, result=result)
        page = PageTables(render(gather(store, "long")))
    rows = dict(page.rows("result"))
    assert rows == {
        "state": "finished",
        "recorded": "2016-06-15 00:00:00",
        "ended": "2016-06-15 00:00:09",
        "clocks": "2",
        "went_back.1.clock": "3",
        "went_back.1.reason": "two nodes were lost",
        "went_back.2.clock": "5",
        "went_back.2.reason": "again",
        "micro_tasks_done.reliable": "4",
    }


def test_the_page_links_the_model_and_names_data_and_commands(tmp_path: Path) -> None:
    url, blobs = f"sqlite:///{tmp_path}/state.db", (tmp_path / "blobs").as_uri()
    training = {"data": "/in/my file.csv", "app": "mine:App", "code": "/in/mine.py"}
    with Store.open(url) as store:
        store.jobs.create_job("mine", {"training": training}, START_S)
        assert [link.label for link in gather(store, "mine", blobs).links] == ["data"], "there is no model yet"
        record_command(url, "mine", "proteus run --job mine --dir 'a b'")
        record_command(url, "mine", "proteus run --job mine --dir 'a b'")
        record_command(url, "other", "proteus run --job other")
        assert len(store.jobs.observations("mine", ObservationKind.COMMAND)) == 1
        assert gather(store, "mine", blobs).links[-1] == Link("go on", "proteus run --job mine --dir 'a b'")
        store.jobs.move_job("mine", JobState.FINISHED, START_S + 9, result={})
        assert [link.label for link in gather(store, "mine").links] == ["data", "repeat"]
    (tmp_path / "blobs").mkdir()
    text = write_report("mine", directory=tmp_path).read_text()
    model = f"{blobs}/jobs/mine/model"
    assert f'<dt>model</dt><dd><a href="{model}">{model}</a></dd>' in text
    assert '<dt>data</dt><dd><a href="file:///in/my%20file.csv">/in/my file.csv</a></dd>' in text
    predict = f"proteus predict {model} mine:App --data &#39;/in/my file.csv&#39; --out - --code /in/mine.py"
    assert f"<dt>predict</dt><dd><code>{predict}</code></dd>" in text
    assert "<dt>repeat</dt><dd><code>proteus run --job mine --dir &#39;a b&#39;</code></dd>" in text


def test_a_link_never_runs_a_script(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/state.db") as store:
        store.jobs.create_job("bad", {"training": {"data": "javascript:alert(1)"}}, START_S)
        (link,) = gather(store, "bad").links
        assert (link.text, link.url) == ("javascript:alert(1)", "")


def test_the_same_state_gives_the_same_page(store: Store) -> None:
    assert render(gather(store, JOB)) == render(gather(store, JOB))


def test_twenty_hours_fit_in_400_kb(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/state.db") as store:
        record_job(store, hours=20)
        text = render(gather(store, JOB))
    assert len(text.encode()) < 400_000
    data = PageTables(text).data
    left = sum(row[4] for row in data["decisions"])
    assert 0 < sum(len(row[3]) for row in data["decisions"]) <= MOST_CANDIDATES + 40 * 8
    assert f"{left} candidates of decisions" in text
    assert all(row[4] == 0 for row in data["decisions"] if row[1] == "acquire")
    assert len(data["decisions"]) > 550


def test_a_job_of_which_little_is_known(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/state.db") as store:
        store.jobs.create_job("new", {}, 1000.0)
        new = PageTables(render(gather(store, "new")))
        assert new.rows("ledger") == [["nothing"]]
        assert new.data["trained"] is None
        store.jobs.create_job("failed", {}, 1000.0)
        store.jobs.move_job("failed", JobState.FAILED, 1060.0, failure=HOSTILE)
        page = gather(store, "failed")
        assert dict(PageTables(render(page)).rows("result"))["failure"] == HOSTILE
        with pytest.raises(UnknownRecord, match="job other: is not in the state database"):
            gather(store, "other")


def test_where_the_report_goes(url: str, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert write_report(JOB, database=url) == Path(f"{JOB}-report.html")
    run = tmp_path / "runs" / JOB
    run.mkdir(parents=True)
    assert write_report(JOB, database=url) == Path("runs") / JOB / "report.html"
    assert write_report(JOB, database=url, output=Path("deep/er.html")) == Path("deep/er.html")
    database = Path(url.removeprefix("sqlite:///"))
    assert write_report(JOB, directory=database.parent) == database.parent / "report.html"
    assert PageTables(Path("deep/er.html").read_text()).data["job"] == JOB
    assert [path.name for path in Path("deep").iterdir()] == ["er.html"]


def test_nothing_is_made_where_nothing_is(tmp_path: Path, url: str, store: Store) -> None:
    with pytest.raises(InputError, match="is not there; name it with --database"):
        write_report(JOB, database=f"sqlite:///{tmp_path}/none/state.db")
    with pytest.raises(InputError, match="--dir names where the run kept its state"):
        write_report(JOB, directory=tmp_path / "none")
    with pytest.raises(InputError, match="not a database URL"):
        write_report(JOB, database="no url")
    with pytest.raises(InputError, match=r"cannot be written: is a directory"):
        write_report(JOB, database=url, output=tmp_path)
    assert list(tmp_path.iterdir()) == []


@given(st.lists(st.one_of(st.floats(-1e6, 1e6), st.just(float("nan"))), max_size=300), st.integers(4, 60))
def test_thinning_keeps_ends_and_extremes(values: list[float], most: int) -> None:
    kept = thin(range(len(values)), values, most)
    assert kept == sorted(set(kept))
    assert len(kept) <= max(most, 0)
    if values:
        assert {0, len(values) - 1} <= set(kept)
    if not np.all(np.isnan(values)):
        assert np.nanmax([values[i] for i in kept]) == np.nanmax(values)
        assert np.nanmin([values[i] for i in kept]) == np.nanmin(values)
