"""A backtest under other billing models: what is asked, what is refused, and that one job's story adds up."""

from pathlib import Path
from typing import Any

import pytest

from proteus_spot.bidding.backtest.billing_codes import model_of
from proteus_spot.bidding.backtest.clairvoyant.bound import CLAIRVOYANT
from proteus_spot.bidding.backtest.outcomes import Outcome
from proteus_spot.bidding.billing import Flat, PerSecondFirstHourFree, Repricing
from proteus_spot.infra.errors import InputError
from proteus_spot.studies.backtest.backtest_inputs import open_inputs
from proteus_spot.studies.backtest.backtest_spec import NAMES, BacktestSpec
from proteus_spot.studies.backtest.job_runs import Cell, plan, run_cells, setting_of
from proteus_spot.studies.backtest.job_story import Kind, job_story, text_of
from proteus_spot.studies.backtest.phases import phases
from proteus_spot.studies.backtest.result_tables import as_json
from tests.support.backtests import quiet, small_file, small_spec

BY_SECOND: dict[str, Any] = {"billing": "per-second-first-hour-free", "reprice": "change"}
FLAT: dict[str, Any] = {"billing": "flat", "flat_price": 0.05, "max_life": "1.5"}


@pytest.fixture(scope="module")
def prices(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_file(tmp_path_factory.mktemp("prices") / "small.csv")


def setting(spec: BacktestSpec, prices: Path, scheme: str) -> Any:
    return setting_of(spec.scheme(scheme), spec, open_inputs(spec, quiet).reference, 2)


def test_the_model_reaches_every_scheme_that_bids(prices: Path) -> None:
    spec = small_spec(prices, schemes=["proteus"], **BY_SECOND)
    assert model_of(setting(spec, prices, "proteus")) == PerSecondFirstHourFree(Repricing.CHANGE)
    spec = small_spec(prices, schemes=["proteus"], **FLAT)
    assert model_of(setting(spec, prices, "standard+checkpoint")) == Flat(50_000, 5400)


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"billing": "free"}, r"^--billing: must be 'hourly-refund', 'per-second-first-hour-free' or 'flat'"),
        ({"billing": "flat"}, r"^--billing flat: needs a price; give --flat-price USD"),
        ({"billing": "flat", "flat_price": "dear"}, r"^--flat-price dear: is not a number"),
        ({"billing": "flat", "flat_price": "1", "max_life": "0"}, r"^--max-life 0: "),
        ({"flat_price": "1"}, r"^--flat-price 1: is for --billing flat, not for hourly-refund; leave it out"),
        ({"billing": "flat", "flat_price": "1", "reprice": "hour"}, r"^--reprice hour: is for --billing per-second"),
        (
            {**BY_SECOND, "schemes": ["proteus", CLAIRVOYANT]},
            r"^--scheme clairvoyant: knows hourly-refund alone, not per-second-first-hour-free; leave it out",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(prices: Path, fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint) as caught:
        small_spec(prices, **fields)
    assert "\n" not in str(caught.value)


def test_there_is_no_bound_and_a_note_says_so(prices: Path) -> None:
    spec = small_spec(prices, hours=[1], starts=4, zones=["all"], **BY_SECOND)
    assert spec.compared == tuple(name for name in NAMES if name != CLAIRVOYANT)
    field = open_inputs(spec, quiet)
    assert "no clairvoyant bound: it knows hourly-refund alone, not per-second-first-hour-free" in field.notes
    ran = list(run_cells(plan(field, spec), threads=1, report=quiet))
    rows = as_json(field, spec, ran, 0.0)["runs"]
    assert {row["clairvoyant_cost"] for row in rows} == {None}
    by_hour = small_spec(prices, hours=[1], starts=4, zones=["all"])
    assert not any("bound" in note for note in open_inputs(by_hour, quiet).notes)


def test_a_flat_price_for_many_types_is_noted(prices: Path) -> None:
    said = "a machine of any type costs the flat price"
    assert any(said in note for note in open_inputs(small_spec(prices, schemes=["proteus"], **FLAT), quiet).notes)
    one = small_spec(prices, schemes=["proteus"], markets=["m4.xlarge/us-east-1a"], **FLAT)
    assert not any(said in note for note in open_inputs(one, quiet).notes)


@pytest.mark.parametrize("fields", [BY_SECOND, FLAT], ids=["by second", "flat"])
@pytest.mark.parametrize("scheme", ["standard+checkpoint", "just-above", "best"])
def test_a_story_adds_up_to_what_the_job_cost(prices: Path, fields: dict[str, Any], scheme: str) -> None:
    spec = small_spec(prices, schemes=[scheme], **fields)
    field = open_inputs(spec, quiet)
    said = []
    for start_s in plan(field, spec).starts_s[2]:
        story = job_story(field, spec, Cell(scheme, "all", 2), int(start_s))
        assert sum(each.amount_micros for each in story.happenings) == story.spot_micros
        assert story.spot_micros + story.reliable_micros == story.row[Outcome.COST_MICROS]
        kinds = [each.kind for each in story.happenings]
        assert kinds.count(Kind.BOUGHT) == sum(kinds.count(end) for end in (Kind.EVICTED, Kind.LAPSED, Kind.ENDED))
        said += [text_of(each, story) for each in story.happenings]
        assert all(block.cost_per_work >= 0 for phase in phases(field, story) for block in phase.blocks)
    told = "\n".join(said)
    assert "paid by the second" in told
    assert "its last hour cost $" in told
    assert " of the hour" not in told, "nothing comes back of what was paid"
    if scheme == "standard+checkpoint":  # which bids so high that hardly anything else ends a life
        assert ("has reached its longest life: its last hour cost $" in told) == (fields is FLAT)
