"""The picture of a job shows what its state holds, and stays small."""

import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proteus_spot.infra.state.records import ObservationKind
from proteus_spot.infra.state.store import Store
from proteus_spot.reports.pictures.job_pictures import MOST_BYTES, job_figure, job_png
from proteus_spot.tasks.reports.job_report import gather
from tests.support.job_states import JOB, START_S, record_job


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with Store.open(f"sqlite:///{tmp_path_factory.mktemp('state')}/state.db") as opened:
        record_job(opened)
        yield opened


@pytest.fixture(scope="module")
def panels(store: Store) -> dict[str, Any]:
    return {axis.get_label(): axis for axis in job_figure(gather(store, JOB).chart).axes}


def _lines(axis: Any, gid: str) -> list[Any]:
    return [line for line in axis.lines if str(line.get_gid()).startswith(gid)]


def test_the_axis_is_the_journals(store: Store, panels: dict[str, Any]) -> None:
    last_s = max(entry.record.get("at_s", 0) for entry in store.journals.entries(JOB))
    for axis in panels.values():
        assert axis.get_xlim() == (0, last_s - START_S)
        gone = [e.record for e in store.journals.entries(JOB) if e.record["kind"] == "AllocationGone"]
        taken = [record["at_s"] - START_S for record in gone if record["cause"] == "evicted"]
        assert [line.get_xdata()[0] for line in _lines(axis, "evicted")] == taken != []
        assert len(_lines(axis, "trained")) == 1


def test_prices_and_bids(store: Store, panels: dict[str, Any]) -> None:
    drawn = {line.get_gid()[2:]: line for line in _lines(panels["prices"], "p-")}
    ticks = [entry.record for entry in store.journals.entries(JOB) if entry.record["kind"] == "TickDue"]
    assert set(drawn) == {market for tick in ticks for market in tick["prices"]}
    for tick in ticks[:: len(ticks) // 10]:
        for market, price in tick["prices"].items():
            times, prices = drawn[market].get_data()
            shown = [value for at_s, value in zip(times, prices, strict=True) if at_s <= tick["at_s"] - START_S]
            assert shown[-1] == price / 1e6
    bids = {line.get_gid()[2:]: line.get_data() for line in _lines(panels["prices"], "b-")}
    spot = {r.allocation_id: r for r in store.purchases.allocations(JOB) if r.allocation.bid_micros is not None}
    assert set(bids) == set(spot)
    for name, (times, prices) in bids.items():
        assert list(times) == [spot[name].allocation.launched_at_s - START_S, (spot[name].ended_at_s or 0) - START_S]
        assert set(prices) == {(spot[name].allocation.bid_micros or 0) / 1e6}


def test_loss_and_dollars(store: Store, panels: dict[str, Any]) -> None:
    (loss,) = _lines(panels["loss"], "loss")
    looks = [
        look for look in store.jobs.observations(JOB, ObservationKind.PROGRESS) if look.payload["loss"] is not None
    ]
    assert list(loss.get_xdata()) == [round(look.at_s - START_S) for look in looks]
    assert loss.get_ydata()[-1] == pytest.approx(looks[-1].payload["loss"], rel=1e-4)
    (spent,) = _lines(panels["dollars"], "spent")
    assert spent.get_ydata()[-1] == pytest.approx(store.purchases.spent(JOB) / 1e6)
    tiers = Counter(collection.get_gid() for collection in panels["footprint"].collections)
    assert tiers == {"reliable": 1, "transient": 1}


def test_it_is_small_however_long_the_job(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/state.db") as store:
        record_job(store, hours=20)
        png = job_png(gather(store, JOB).chart)
    assert len(png) <= MOST_BYTES
    width, height = struct.unpack(">II", png[16:24])
    assert width > 400
    assert height > 400


def test_a_job_of_which_nothing_is_known(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/state.db") as store:
        store.jobs.create_job("new", {}, 1000.0)
        assert job_png(gather(store, "new").chart).startswith(b"\x89PNG")
