"""Files of eviction models and of capacity."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from proteus_spot.bidding.evictions.curve_model import CurveModel
from proteus_spot.bidding.evictions.fit_capacity import DOWN, UP, Band
from proteus_spot.bidding.evictions.fit_conditioned import fit_conditioned
from proteus_spot.bidding.evictions.fit_survival import fit_survival, fit_table
from proteus_spot.bidding.market.time_window import TimeWindow
from proteus_spot.bidding.market.traces import TraceSet
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.market_data.capacity_files import read_advisor, read_availabilities, read_availability
from proteus_spot.infra.market_data.eviction_model_files import read_model, write_model
from tests.bidding.evictions.naive import MARKET, OTHER, trace

PRICES = TraceSet({MARKET: trace((0, 20_000), (4000, 33_333), (9000, 20_000)), OTHER: trace((50, 1))})


@pytest.mark.parametrize("fit", [fit_table, fit_survival, fit_conditioned])
def test_a_model_is_read_back_to_the_last_bit_and_written_the_same_again(fit, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    model: CurveModel = fit(PRICES, TimeWindow(0, 20_000))
    write_model(tmp_path / "a.npz", model)
    again = read_model(tmp_path / "a.npz")
    assert again == model
    assert again.curves.survival.tobytes() == model.curves.survival.tobytes()
    write_model(tmp_path / "b.npz", again)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def record(model: CurveModel, **changes: object) -> dict[str, np.ndarray]:
    text = json.dumps(model.header() | changes).encode()
    return {"header": np.frombuffer(text, dtype=np.uint8), **model.arrays()}


def test_what_is_no_model_is_told_in_one_line(tmp_path: Path) -> None:
    model, path = fit_survival(PRICES, TimeWindow(0, 20_000)), tmp_path / "m.npz"
    cases: list[tuple[dict[str, np.ndarray], str]] = [
        (record(model, schema=7), r"m.npz: is not an eviction model \(has schema 7; this program reads 1\)"),
        (model.arrays(), "has no 'header'"),
        ({"header": np.frombuffer(b"{", dtype=np.uint8)}, "is not an eviction model"),
        ({"header": np.frombuffer(b"[]", dtype=np.uint8)}, "is not an eviction model"),
        ({name: part for name, part in record(model).items() if name != "survival"}, "survival"),
        (record(model) | {"survival": np.array(["x"])}, "is not an eviction model"),
        (record(fit_survival(TraceSet({}), TimeWindow(0, 20_000))), "knows no market"),
    ]
    for arrays, says in cases:
        with path.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
        with pytest.raises(InputError, match=says):
            read_model(path)
    path.write_bytes(b"no zip")
    with pytest.raises(InputError, match=r"not an \.npz file"):
        read_model(path)
    with pytest.raises(InputError, match="no such file"):
        read_model(tmp_path / "none.npz")


ADVISOR = {
    "ranges": [{"index": i, "max": top, "label": ""} for i, top in enumerate((5, 11, 16, 22, 100))],
    "spot_advisor": {"us-east-1": {"Linux": {"a": {"r": 0, "s": 9}, "b": {"r": 1}, "c": {"r": 4}}, "Windows": {}}},
}


def test_bands_are_those_of_the_labels(tmp_path: Path) -> None:
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(json.dumps(ADVISOR).encode()))
    bands = read_advisor(tmp_path / "a.json.gz")
    assert bands == {"us-east-1": {"a": Band(0.0, 0.05), "b": Band(0.05, 0.1), "c": Band(0.2, None)}}
    assert read_advisor(tmp_path / "a.json.gz", "Windows") == {"us-east-1": {}}


#: The ranges of an advisor file.
RANGES = '"ranges": [{"index": 0, "max": 5}, {"index": 1, "max": 100}]'


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "t JSON"),
        ("[]", r"the file is \[\], no mapping"),
        ("{}", "the file has no ranges"),
        ('{"ranges": [], "spot_advisor": {}}', "ranges is not a list of ranges"),
        ('{"ranges": [{"max": 5}]}', r"ranges\[0\] has no index"),
        ('{"ranges": [{"index": 0}]}', r"ranges\[0\] has no max"),
        ('{"ranges": [7]}', r"ranges\[0\] is 7, no mapping"),
        ('{"ranges": [{"index": null, "max": 5}]}', r"ranges\[0\]\.index is null, no whole number"),
        ('{"ranges": [{"index": 0, "max": 2}]}', r"ranges\[0\] ends at 2 %, and begins at 0%"),
        (f"{{{RANGES}}}", "the file has no spot_advisor"),
        (f'{{{RANGES}, "spot_advisor": []}}', r"spot_advisor is \[\], no mapping"),
        (f'{{{RANGES}, "spot_advisor": {{"u": null}}}}', "u is null, no mapping"),
        (f'{{{RANGES}, "spot_advisor": {{"u": {{"Linux": {{"m5": 3}}}}}}}}', "the entry of m5 in u is 3, no mapping"),
        (f'{{{RANGES}, "spot_advisor": {{"u": {{"Linux": {{"m5": {{}}}}}}}}}}', "the entry of m5 in u has no r"),
        (f'{{{RANGES}, "spot_advisor": {{"u": {{"Linux": {{"m5": {{"r": null}}}}}}}}}}', "the band of m5 in u is null"),
        (f'{{{RANGES}, "spot_advisor": {{"u": {{"Linux": {{"m5": {{"r": 9}}}}}}}}}}', "m5 in u is 9, which is none of"),
    ],
)
def test_what_is_no_advisor_file_is_told(tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(InputError, match=rf"a\.json: is no.*{says}") as caught:
        read_advisor(tmp_path / "a.json")
    assert "Error" not in str(caught.value)


def test_an_availability_file_is_a_trace(tmp_path: Path) -> None:
    (tmp_path / "u.json").write_text('{"metadata": {"gap_seconds": 600}, "data": [1, 1.0, 0, 8]}')
    found = read_availability(tmp_path / "u.json", 60)
    assert found.times_s.tolist() == [60, 660, 1260, 1860]
    assert found.prices_micros.tolist() == [UP, UP, DOWN, UP]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{}", "metadata"),
        ('{"metadata": {"gap_seconds": 0}, "data": [1]}', "gap_seconds is 0"),
        ('{"metadata": {"gap_seconds": true}, "data": [1]}', "gap_seconds is true"),
        ('{"metadata": {"gap_seconds": 60}, "data": []}', "needs steps"),
        ('{"metadata": {"gap_seconds": 60}, "data": [1, "x"]}', r'data\[1\] is "x"'),
        ('{"metadata": {"gap_seconds": 60}, "data": [1, 0, -1]}', r"data\[2\] is -1"),
        ('{"metadata": {"gap_seconds": 60}, "data": 3}', "data is 3, no list"),
    ],
)
def test_what_is_no_availability_trace_is_told(tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / "u.json").write_text(content)
    with pytest.raises(InputError, match=f"u.json: is not an availability trace .*{says}"):
        read_availability(tmp_path / "u.json")


def test_availability_traces_are_of_the_markets_that_they_are_named_after(tmp_path: Path) -> None:
    text = json.dumps({"metadata": {"gap_seconds": 60}, "data": [1, 0]})
    for name in ("us-west-2a_v100_1.json", "u.json"):
        (tmp_path / name).write_text(text)
    mine = f"c4.large/us-east-1a={tmp_path}/u.json"
    found = read_availabilities([f"{tmp_path}/us-west-2a_v100_1.json", mine], 600)
    assert [str(market) for market in found] == ["c4.large/us-east-1a", "v100_1/us-west-2a"]
    assert {int(trace.times_s[0]) for trace in found.values()} == {600}
    for given, says in (
        ([f"{tmp_path}/u.json"], r"^--availability: not a market: .*; write TYPE/ZONE=FILE$"),
        ([mine, mine], r"c4\.large/us-east-1a has a trace already; name the market"),
    ):
        with pytest.raises(InputError, match=says):
            read_availabilities(given)
