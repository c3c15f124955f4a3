"""Backtests of markets whose machines cannot be had at all times, whatever is bid."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proteus_spot.bidding.backtest.outcomes import Outcome
from proteus_spot.bidding.backtest.reference_cluster import draw_starts
from proteus_spot.bidding.backtest.runner import run as run_jobs
from proteus_spot.bidding.backtest.runner import run_one
from proteus_spot.bidding.evictions.fit_capacity import NO_CAPACITY_MICROS
from proteus_spot.bidding.market.model import DAY_S
from proteus_spot.bidding.market.traces import Trace, TraceSet
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.market_data.price_files import write_prices
from proteus_spot.studies.backtest.backtest_inputs import BacktestInputs, open_inputs
from proteus_spot.studies.backtest.backtest_spec import BacktestSpec
from proteus_spot.studies.backtest.capacity import why_taken
from proteus_spot.studies.backtest.job_runs import Cell
from proteus_spot.studies.backtest.job_story import Kind, job_story, text_of
from tests.support.backtests import MARKETS, T0, quiet, small_file, small_spec

GAP_S = 600
#: Seven days: nine steps up, one down, from a day after the file's beginning; the last market changes at other times.
DAYS = 7
STEPS = {market: np.roll(np.tile([1] * 9 + [0], 7 * 144 // 10), 3 * row) for row, market in enumerate(MARKETS[:2])}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small price file, and availability traces of two of its three markets."""
    folder = tmp_path_factory.mktemp("scarce")
    small_file(folder / "small.csv")
    for row, steps in enumerate(STEPS.values()):
        record = {"metadata": {"gap_seconds": GAP_S}, "data": steps.tolist()}
        (folder / f"up-{row}.json").write_text(json.dumps(record))
    return folder


def asked(folder: Path, **fields: Any) -> BacktestSpec:
    traces = [f"{market}={folder}/up-{row}.json" for row, market in enumerate(STEPS)]
    return small_spec(folder / "small.csv", **{"availability": traces, "begins": "2016-06-02", **fields})


@pytest.fixture(scope="module")
def field(folder: Path) -> BacktestInputs:
    return open_inputs(asked(folder, schemes=["best", "proteus", "standard+agileml", "just-above"]), quiet)


def up(row: int, at_s: int) -> bool:
    """Whether the market could be had."""
    return bool(list(STEPS.values())[row][(at_s - T0 - DAY_S) // GAP_S])


def test_prices_are_those_of_the_time_and_the_markets_that_are_told_of(field: BacktestInputs) -> None:
    assert field.markets == MARKETS[:2]
    assert f"without an availability trace, hence left out: {MARKETS[2]}" in field.notes
    assert (field.traces.first_s, field.traces.last_s) == (
        T0 + DAY_S,
        T0 + DAY_S + GAP_S * (len(STEPS[MARKETS[0]]) - 1),
    )


def test_what_is_not_given_is_learnt_of_the_capacity_of_the_fit(field: BacktestInputs) -> None:
    """Nine of ten steps are up: a purchase in one of them is taken within the hour, except in the first three."""
    assert (field.evictions.bids_decide, field.foresight) == (False, None)
    for market in MARKETS[:2]:
        beta, median_s = field.evictions.of_bid(market, 0)
        assert beta == pytest.approx(6 / 9, abs=0.02)
        assert median_s == pytest.approx(1800, abs=60)


@pytest.mark.parametrize("name", ["best", "proteus", "standard+agileml", "just-above"])
def test_nothing_is_held_while_it_cannot_be_had_and_nobody_pays_for_that(
    folder: Path, field: BacktestInputs, name: str
) -> None:
    spec = asked(folder)
    scheme = spec.scheme(name)
    setting = scheme.setting(field.reference, 2)
    taken = 0
    for start_s in range(field.windows.evaluation.from_s, field.windows.evaluation.from_s + 6 * 3600, 2500):
        row, lives = run_one(*field.packed(field.markets), scheme, start_s, field.reference, setting)
        assert row[Outcome.FINISHED]
        assert row[Outcome.COST_MICROS] < field.reference.job_micros(2) * 3, (
            "at no hour's price of a market without any"
        )
        for granted_s, market, _, bid, ended_s, evicted in lives.tolist():
            assert all(up(market, second) for second in range(granted_s, ended_s))
            assert bid < NO_CAPACITY_MICROS
            if evicted and not up(market, ended_s):
                taken += 1
    assert taken, "an eviction for want of capacity"


def test_under_best_what_ends_is_the_capacity_alone(folder: Path, field: BacktestInputs) -> None:
    spec = asked(folder)
    scheme = spec.scheme("best")
    start_s = field.windows.evaluation.from_s
    _, lives = run_one(
        *field.packed(field.markets), scheme, start_s, field.reference, scheme.setting(field.reference, 2)
    )
    for _, market, _, bid, _, _ in lives.tolist():
        assert bid == field.types[MARKETS[market].instance_type].on_demand_micros


def test_a_story_says_what_took_the_machines(folder: Path, field: BacktestInputs) -> None:
    cell, spec = Cell("just-above", "all", 2), asked(folder)
    story = job_story(field, spec, cell, field.windows.evaluation.from_s, None)
    lost = [each for each in story.happenings if each.kind is Kind.EVICTED and each.life is not None]
    whys = {": its capacity has ended; " in text_of(each, story) for each in lost}
    assert whys == {True, False}, "some by capacity, some by price"
    for each in lost:
        assert each.life is not None
        here = up(MARKETS.index(each.life.market), each.at_s)
        assert here is not (": its capacity has ended; " in text_of(each, story))
    assert "the price of $0.0500 has passed the bid" in why_taken(50_000)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (
            {"begins": "2016-01-01"},
            r"^--availability: begins 2016-01-01 00:00 .*no market of .*small\.csv has prices then",
        ),
        ({"begins": "soon"}, r"^--begins soon: is not a UTC day or time"),
        ({"ceiling": False}, r"^--availability: what cannot be had has no price at all; leave --no-ceiling out"),
        ({"availability": ["up.json"]}, r"^--availability: not a market: .*; write TYPE/ZONE=FILE"),
        ({"availability": ["a/b=none.json"]}, r"none\.json: there is no such file"),
    ],
)
def test_traces_that_cannot_be_used_are_refused(folder: Path, fields: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        open_inputs(asked(folder, **fields), quiet)


def test_prices_that_end_before_the_traces_are_held_and_that_is_said(folder: Path) -> None:
    field = open_inputs(asked(folder, begins="2016-06-08", schemes=["just-above"]), quiet)
    assert any(note.startswith("the prices end 2016-06-") and "are held" in note for note in field.notes)


@pytest.mark.skipif("PROTEUS_TRACES" not in os.environ, reason="PROTEUS_TRACES names no folder of real traces")
def test_on_real_capacity_best_finishes_every_job_and_costs_less_than_the_published_rules(tmp_path: Path) -> None:
    """Prices as of today, which do not move, and what could be had in two zones in the autumn of 2022."""
    folder = Path(os.environ["PROTEUS_TRACES"]) / "availability" / "aws-2022-10"
    flat = TraceSet({market: Trace(np.array([T0 - DAY_S]), np.array([60_000])) for market in MARKETS[1:]})
    write_prices(tmp_path / "flat.csv", flat)
    files = (folder / "us-west-2a_v100_1.json", folder / "us-west-2b_v100_1.json")
    spec = small_spec(
        tmp_path / "flat.csv",
        availability=[f"{market}={file}" for market, file in zip(MARKETS[1:], files, strict=True)],
        begins="2016-06-01",
        fit_to="2016-06-11",
        schemes=["proteus", "best"],
    )
    field = open_inputs(spec, quiet)
    assert not field.evictions.bids_decide
    window = field.windows.evaluation
    starts_s = draw_starts(np.random.default_rng(1), window.from_s, window.until_s, 20, 200)
    costs = {}
    for name in spec.schemes:
        ran = run_jobs(*field.packed(field.markets), spec.scheme(name), starts_s, 20, field.reference)
        costs[name] = ran.relative_cost
        assert ran.finished.mean() > 0.99
    assert (costs["proteus"] - costs["best"]).mean() > 3 * (costs["proteus"] - costs["best"]).std() / 200**0.5
