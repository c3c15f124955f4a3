"""Sets of records of availability: what is read, what is shown, and what is refused."""

import gzip
import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from proteus_spot.infra.errors import InputError
from proteus_spot.infra.market_data.capacity_sets import COUNTS, PRICES
from proteus_spot.studies.availability import ELASTIC_BOUND, OURS, AvailabilitySpec, availability_figures


def quiet(_done: int, _total: int, _what: str) -> None:
    return


def counts_set(folder: Path, steps: int = 850) -> Path:
    rng = np.random.default_rng(3)
    lines = ["timestamp,zone,launched,requested"]
    for step in range(steps):
        stamp = np.datetime64("2025-10-04T00:00:00") + np.timedelta64(600 * step, "s")
        for zone in ("near-1-a", "near-1-b", "far-1-a"):
            lines.append(f"{stamp}Z,{zone},{rng.integers(0, 17)},16")
    (folder / COUNTS).write_bytes(gzip.compress("\n".join(lines).encode()))
    (folder / PRICES).write_text(
        "region,machine_type,spot_usd_per_h,on_demand_usd_per_h,observed\nnear-1,t,16,80,d\nfar-1,t,24,88,d\n"
    )
    return folder


def markets_set(folder: Path, steps: int = 900) -> Path:
    rng = np.random.default_rng(4)
    for zone in "ab":
        there = np.repeat(rng.integers(0, 2, size=steps), rng.integers(1, 12, size=steps))[:steps]
        (folder / f"zone-{zone}_kind.json").write_text(
            json.dumps({"metadata": {"gap_seconds": 600}, "data": there.tolist()})
        )
    return folder


def test_counts_are_told_by_scheme_beside_bounds_and_goals(tmp_path: Path) -> None:
    result = availability_figures(AvailabilitySpec(str(counts_set(tmp_path)), starts=4), quiet)
    runs = result["runs"]
    assert {run["machines"] for run in runs} == {4, 16, 64}
    assert all(run["in_time"] == 1.0 for run in runs)
    costs = {run["scheme"]: run["relative_cost"] for run in runs if (run["machines"], run["slack"]) == (4, 1.5)}
    assert min(costs, key=lambda name: costs[name]) == ELASTIC_BOUND
    assert costs[OURS] < costs["on-demand"]
    assert [goal["what"][:11] for goal in result["goals"]] == ["16 machines"] * 3 + ["deadlines m"]
    assert json.loads(json.dumps(result)) == result


def test_one_machine_is_told_paired_against_uniform_progress(tmp_path: Path) -> None:
    result = availability_figures(AvailabilitySpec(str(markets_set(tmp_path)), starts=5), quiet)
    assert {(run["prices"], run["deadline_h"], run["restart_s"]) for run in result["runs"]} == set(
        product((2021, 2026), (52, 70), (180, 720))
    )
    assert all(run["gain"] == 0 for run in result["runs"] if run["scheme"] == "uniform-progress")
    assert result["goals"][-1]["holds"]


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        (COUNTS, "timestamp,zone\n", "has no column launched"),
        (COUNTS, "timestamp,zone,launched\nnoon,near-1-a,3\n", "row 2: timestamp is 'noon'"),
        (COUNTS, "timestamp,zone,launched\n2025-10-04T00:00:00Z,near-1-a,x\n", "row 2: launched is 'x'"),
        (COUNTS, "timestamp,zone,launched\n2025-10-04T00:00:00Z\n", "row 2: is cut short"),
        (COUNTS, "timestamp,zone,launched\n2025-10-04T00:00:00Z,other-1-a,1\n", "no price of other-1"),
        (COUNTS, "timestamp,zone,launched\n2025-10-04T00:00:00Z,near-1-a,1\n", "too short"),
        (PRICES, "region,spot_usd_per_h,on_demand_usd_per_h\nnear-1,-1,2\n", "spot_usd_per_h is '-1'"),
        ("zone-a_kind.json", "{}", "is not an availability trace"),
        ("zone-a_kind.json", "{", "is not JSON"),
        ("zone-a_kind.json", '{"metadata": {"gap_seconds": 600}, "data": [1, Infinity]}', "data[1] is Infinity"),
        ("zone-a_kind.json", '{"metadata": {"gap_seconds": 600}, "data": []}', "has no step"),
        ("zone-a_kind.json", '{"metadata": {"gap_seconds": 600}, "data": [1]}', "give longer records"),
    ],
)
def test_a_fault_names_its_place(tmp_path: Path, name: str, text: str, says: str) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    if name in (COUNTS, PRICES):
        counts_set(folder, steps=3)
    (folder / name).write_text(text)
    with pytest.raises(InputError, match="set") as caught:
        availability_figures(AvailabilitySpec(str(folder), starts=2), quiet)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_set_that_is_not_there_names_those_that_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "availability" / "known").mkdir(parents=True)
    monkeypatch.setenv("PROTEUS_TRACES", str(tmp_path))
    with pytest.raises(InputError, match=r"unknown: is not a folder.*there are known"):
        availability_figures(AvailabilitySpec("unknown"), quiet)
    with pytest.raises(InputError, match="has neither"):
        availability_figures(AvailabilitySpec("known"), quiet)
