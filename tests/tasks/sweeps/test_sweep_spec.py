"""The description of a sweep: the file of the tutorial, its defaults, and one line for each fault."""

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from prefect.utilities.callables import parameter_schema
from prefect.utilities.schema_tools import validate

from proteus_spot.bidding.market.catalog import Catalog, CatalogRow
from proteus_spot.bidding.market.model import InstanceType, Market
from proteus_spot.infra.errors import InputError
from proteus_spot.tasks.sweeps.markets import MarketSelection, resolve_markets
from proteus_spot.tasks.sweeps.sweep_spec import OPTUNA_SAMPLERS, SweepSpec, parse_sweep, read_sweep, sweep_name

LEAST: dict[str, Any] = {
    "trial": "my_trial:train",
    "code": "my_trial.py",
    "space": {"alpha": {"log": [1.0e-5, 1.0e-1], "points": 8}, "penalty": {"choice": ["l1", "l2"]}},
    "metric": {"name": "loss"},
    "max_trial_steps": 200,
}
WHOLE = """
sweep: digits
trial: my_trial:train
code: my_trial.py
data: digits.csv
space: {alpha: {log: [1.0e-5, 1.0e-1], points: 8}, penalty: {choice: [l1, l2]}}
sampler: grid
metric: {name: loss, direction: minimize}
max_trial_steps: 200
stop: earlycurve
theta: 0.7
mcnt: 3
predictor: table
parallel: 8
markets: {cpus: 2+, memory_gib: 4+}
budget_usd: 5.0
deadline: 12h
seed: 0
"""
C4, R4 = (InstanceType(name, vcpu, gib, 100_000) for name, vcpu, gib in (("c4.large", 2, 3.75), ("r4.large", 2, 15.25)))
CATALOG = Catalog(
    [CatalogRow(C4, "us-east-1"), CatalogRow(R4, "us-east-1"), CatalogRow(R4, "us-west-2", date(2030, 1, 1))]
)
PRICED = tuple(Market.parse(f"{kind}/us-east-1{zone}") for kind in ("r4.large", "c4.large") for zone in "ba")


def test_the_file_of_the_tutorial_and_what_is_left_out_of_it(tmp_path: Path) -> None:
    (tmp_path / "whole.yaml").write_text(WHOLE)
    (tmp_path / "My sweep.yaml").write_text(
        "trial: my_trial:train\ncode: my_trial.py\nspace: {alpha: {log: [1.0e-5, 1.0e-1], points: 8}, "
        "penalty: {choice: [l1, l2]}}\nmetric: {name: loss}\nmax_trial_steps: 200\n"
    )
    whole, least = read_sweep(tmp_path / "whole.yaml"), read_sweep(tmp_path / "My sweep.yaml")
    assert (least.sweep, least.budget_usd, least.deadline, least.data) == ("my-sweep", None, None, "")
    given = {"sweep": "digits", "budget_usd": 5.0, "deadline": "12h", "data": "digits.csv"}
    assert least.model_copy(update=given) == whole
    assert (whole.trial_count, len(whole.settings), whole.budget_micros) == (16, 16, 5_000_000)
    assert whole.deadline_s(1000) == 1000 + 12 * 3600
    assert SweepSpec.model_validate(whole.model_dump(mode="json")) == whole
    stored = json.loads(json.dumps(whole.model_dump(mode="json"), sort_keys=True))
    assert (
        SweepSpec.model_validate({**stored, "space": dict(reversed(stored["space"].items()))}).settings
        == whole.settings
    )


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"trial": "train"}, "trial: 'train' is not known; write module:function, or one of bgd, kmeans, lda, mf, mlr"),
        ({"code": ""}, "code: is missing; give the .py file or wheel that holds my_trial:train"),
        ({"trial": "mlr"}, "code: trial mlr is an application of the engine; leave code out"),
        (
            {"space": {"alpha": {"log": [1, 2]}}},
            "space.alpha: a grid needs points of a range: {log: [1, 2], points: 8}",
        ),
        ({"space": {"alpha": {"log": [0, 2]}}}, "space.alpha: log must begin above 0"),
        ({"space": {}}, "space: is empty"),
        ({"sampler": "random"}, "trials: is missing; sampler random needs a number of trials"),
        ({"sampler": "nonsense"}, "sampler: 'nonsense' is not known; use one of grid, random, TPESampler"),
        ({"trials": 4}, "trials: a grid tries all its settings; leave trials out"),
        ({"metric": {"name": "a loss"}}, "metric.name: 'a loss' is not a name of a metric"),
        ({"metric": {"name": "loss", "bound": 1}}, "metric: bound is for maximize"),
        ({"metric": {"direction": "up", "name": "x"}}, "metric.direction: must be 'minimize' or 'maximize' (is 'up')"),
        ({"max_trial_steps": 0}, "max_trial_steps: must be at least 1 (is 0)"),
        ({"theta": 0}, "theta: must be above 0 (is 0)"),
        ({"mcnt": True}, "mcnt: is true, a truth value; write a number"),
        ({"markets": "c4.large"}, "markets: must be a list of TYPE/ZONE, or a mapping with cpus, memory_gib, types"),
        ({"markets": ["c4.large"]}, "markets.0: not a market: 'c4.large'"),
        ({"markets": []}, "markets: must have at least 1 entries"),
        ({"markets": {"cpus": "8-2"}}, "markets.cpus: '8-2' is not a size of a machine"),
        ({"markets": {"gpus": 1}}, "markets.gpus: is not known"),
        ({"deadline": "soon"}, "deadline: 'soon' is not a deadline"),
        ({"budget_usd": 1e-9}, "budget_usd: is 1e-09, less than a micro-dollar"),
        ({"billing": "flat"}, "flat_price: billing flat: needs a price"),
        ({"data": "https://x/y?Signature=1"}, "data: is a URL with a credential in it"),
        ({"sweep": "My Sweep"}, "sweep: must be 1 to 40 lower-case letters"),
        ({"sweep_id": "-"}, "sweep_id: must be 1 to 40 lower-case letters"),
        ({"colour": "red"}, "colour: is not known; fix its name, or leave it out"),
    ],
)
def test_a_fault_is_one_line_that_names_the_field(changed: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_sweep({**LEAST, **changed}, "s.yaml: ")
    assert str(caught.value).startswith(f"s.yaml: {says}")
    assert "\n" not in str(caught.value)


def test_what_must_be_given() -> None:
    for name in ("trial", "space", "metric", "max_trial_steps"):
        with pytest.raises(InputError, match=f"^{name}: is missing; give it$"):
            parse_sweep({key: value for key, value in LEAST.items() if key != name})


def test_an_id_is_given_or_made_of_name_and_run() -> None:
    spec = parse_sweep({**LEAST, "sweep": "a" * 26 + "-bcd"})
    made = spec.for_run("0199aaaa-1111-7222-8333-0123456789AB").sweep_id
    assert made == "a" * 26 + "-0123456789ab"
    assert SweepSpec.model_validate({**spec.model_dump(), "sweep_id": made}).job_id == made
    assert spec.for_run("0199aaaa-1111-7222-8333-0123456789ac").sweep_id != made
    assert parse_sweep({**LEAST, "sweep_id": "mine"}).for_run("x").sweep_id == "mine"


@pytest.mark.parametrize(
    ("name", "sweep"), [("digits.yaml", "digits"), ("Ü 1.yml", "1"), ("__.yaml", "sweep"), ("a" * 99, "a" * 40)]
)
def test_the_name_of_a_file(name: str, sweep: str) -> None:
    assert sweep_name(Path(name)) == sweep


def test_samplers_are_optunas_and_found_without_its_suffix() -> None:
    assert set(OPTUNA_SAMPLERS) <= set(pytest.importorskip("optuna.samplers").__all__)
    for name in ("tpe", "TPE", "TPESampler", " tpesampler "):
        assert parse_sweep({**LEAST, "sampler": name, "trials": 3}).sampler == "TPESampler"
    assert parse_sweep({**LEAST, "sampler": "random", "trials": 3}).sampler == "random"


def test_markets_by_size_and_name_are_resolved_against_what_is_on_sale() -> None:
    at_s = 1_500_000_000
    default = parse_sweep(LEAST).markets
    assert [str(each) for each in resolve_markets(default, PRICED, CATALOG, at_s)] == [
        "r4.large/us-east-1a",
        "r4.large/us-east-1b",
    ]
    small = MarketSelection(memory_gib="1-4", zones=["us-east-1b"])
    assert [str(each) for each in resolve_markets(small, PRICED, CATALOG, at_s)] == ["c4.large/us-east-1b"]
    named = parse_sweep({**LEAST, "markets": ["c4.large/us-east-1b"]})
    found = resolve_markets(named.markets, PRICED, CATALOG, at_s)
    assert named.in_markets(found) == named


@pytest.mark.parametrize(
    ("markets", "says"),
    [
        ({"cpus": "64+"}, "markets: no market has such a machine; there are c4.large/us-east-1a"),
        ({"types": ["m9"]}, "markets.types: m9 has no prices; name some of c4.large, r4.large"),
        ({"zones": ["us-east-1f"]}, "markets.zones: us-east-1f has no prices; name some of us-east-1a, us-east-1b"),
        (["c4.large/us-east-1f"], "markets: c4.large/us-east-1f has no prices; name some of c4.large/us-east-1a"),
    ],
)
def test_markets_that_are_not_on_sale_are_refused(markets: Any, says: str) -> None:
    with pytest.raises(InputError) as caught:
        resolve_markets(parse_sweep({**LEAST, "markets": markets}).markets, PRICED, CATALOG, 1_500_000_000)
    assert str(caught.value).startswith(says)


def test_the_form_of_the_deployment_offers_choices_and_takes_what_the_file_takes() -> None:
    def flow(spec: SweepSpec) -> None: ...

    schema = parameter_schema(flow).model_dump(mode="json")
    fields = schema["definitions"]["SweepSpec"]["properties"]
    assert fields["sampler"]["enum"][:3] == ["grid", "random", "TPESampler"]
    assert fields["stop"]["enum"] == ["earlycurve", "asha", "median", "none"]
    assert fields["predictor"]["enum"] == ["table", "revpred", "tributary", "logistic", "none"]
    assert schema["definitions"]["Metric"]["properties"]["direction"]["enum"] == ["minimize", "maximize"]
    assert {"minimum", "maximum", "title"} <= set(fields["parallel"])
    assert "oneOf" not in json.dumps(schema), "the form does not draw it"
    for changed in ({}, {"markets": ["c4.large/us-east-1a"]}, {"sampler": "tpe", "trials": 3}, {"sweep_id": "mine"}):
        spec = parse_sweep({**LEAST, **changed}).model_dump(mode="json")
        assert not validate({"spec": spec}, schema)
    assert validate({"spec": {**parse_sweep(LEAST).model_dump(mode="json"), "stop": "soon"}}, schema)
