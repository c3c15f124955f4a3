"""One job told in order: its money to the micro-dollar, what it held, and why it bought."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from proteus_spot.bidding.backtest.outcomes import Outcome
from proteus_spot.bidding.backtest.schemes.scheme_registry import SCHEMES
from proteus_spot.bidding.policies.base import Choice
from proteus_spot.infra.errors import InputError
from proteus_spot.studies.backtest.backtest_inputs import BacktestInputs, open_inputs
from proteus_spot.studies.backtest.backtest_spec import BacktestSpec
from proteus_spot.studies.backtest.explain import explainer
from proteus_spot.studies.backtest.job_runs import Cell, plan
from proteus_spot.studies.backtest.job_story import AllocationLife, Kind, Story, job_story, story_json, text_of
from proteus_spot.studies.backtest.phases import phases
from tests.support.backtests import MARKETS, T0, quiet, small_file, small_spec

HOUR_S = 3600


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> BacktestSpec:
    return small_spec(small_file(tmp_path_factory.mktemp("prices") / "small.csv"))


@pytest.fixture(scope="module")
def field(spec: BacktestSpec) -> BacktestInputs:
    return open_inputs(spec, quiet)


def stories(field: BacktestInputs, spec: BacktestSpec, scheme: str) -> list[Story]:
    starts_s = plan(field, spec).starts_s[2]
    return [job_story(field, spec, Cell(scheme, "all", 2), int(start_s)) for start_s in starts_s]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_is_told_adds_up_to_what_the_job_cost(field: BacktestInputs, spec: BacktestSpec, scheme: str) -> None:
    for story in stories(field, spec, scheme):
        told = sum(each.amount_micros for each in story.happenings)
        assert told == story.spot_micros
        assert story.spot_micros + story.reliable_micros == story.row[Outcome.COST_MICROS]
        kinds = Counter(each.kind for each in story.happenings)
        assert kinds[Kind.EVICTED] == story.row[Outcome.EVICTIONS]
        assert kinds[Kind.BOUGHT] == story.row[Outcome.PURCHASES] == len(story.lives)
        assert kinds[Kind.EVICTED] + kinds[Kind.LAPSED] + kinds[Kind.ENDED] == len(story.lives)
        assert kinds[Kind.DONE] == 1


def test_it_is_told_in_order_and_holds_what_it_says(field: BacktestInputs, spec: BacktestSpec) -> None:
    evicted = 0
    for story in stories(field, spec, "proteus"):
        times = [each.at_s for each in story.happenings]
        assert times == sorted(times)
        assert (times[0], times[-1]) == (story.start_s, story.end_s)
        for each in story.happenings:
            assert 0 <= each.held_vcpus <= spec.max_spot_vcpus
            evicted += each.kind is Kind.EVICTED
            if each.kind is Kind.EVICTED and each.life is not None:
                assert each.price_micros is not None
                assert each.price_micros > each.life.bid_micros
        last_of_second = {each.at_s: each for each in story.happenings}
        for at_s, each in last_of_second.items():
            if each.kind is not Kind.DONE:
                vcpus = sum(life.count * field.types[life.market.instance_type].vcpu for life in story.held_at(at_s))
                assert vcpus == each.held_vcpus
    assert evicted, "the small market takes machines"


def test_the_hours_of_an_allocation() -> None:
    def hours(lasts_s: int) -> list[int]:
        return list(AllocationLife(1, MARKETS[0], 1, 1, 100, 100 + lasts_s, evicted=False).hours())

    assert hours(1) == [100]
    assert hours(HOUR_S) == [100]
    assert hours(HOUR_S + 1) == [100, 100 + HOUR_S]


def test_every_line_reads(field: BacktestInputs, spec: BacktestSpec) -> None:
    lines = [text_of(each, story) for story in stories(field, spec, "proteus") for each in story.happenings]
    said = "\n".join(lines)
    for pattern in (
        "buys #1 ",
        " another hour: pays $",
        "has passed the bid; $",
        "of the hour is not used",
        "the work is done",
    ):
        assert pattern in said, pattern


def test_a_job_that_is_given_up_says_so(field: BacktestInputs, spec: BacktestSpec) -> None:
    slow = spec.model_copy(update={"max_spot_vcpus": 4, "schemes": ["proteus"]})
    story = job_story(open_inputs(slow, quiet), slow, Cell("proteus", "all", 1), T0 + 7 * 86_400)
    assert not story.row[Outcome.FINISHED]
    assert text_of(story.happenings[-1], story) == "given up: 5.5 h have passed and the work is not done"


def test_a_start_outside_the_evaluation_is_refused(field: BacktestInputs, spec: BacktestSpec) -> None:
    with pytest.raises(InputError, match=r"--explain 2016-06-02 00:00: is not in the evaluation \(2016-06-07"):
        job_story(field, spec, Cell("proteus", "all", 1), T0 + 86_400)


# Why


def explained(
    field: BacktestInputs, spec: BacktestSpec, scheme: str = "proteus", hours: int = 2, jobs: int = 12
) -> list[Story]:
    found = []
    for start_s in plan(field, spec).starts_s[2][:jobs]:
        cell = Cell(scheme, "all", hours)
        found.append(job_story(field, spec, cell, int(start_s), explainer(field, spec, cell, int(start_s))))
    return found


@pytest.mark.parametrize("scheme", [*SCHEMES, "fixed-delta:0.01"])
def test_every_decision_of_every_scheme_has_the_reason_of_its_live_policy(
    field: BacktestInputs, spec: BacktestSpec, scheme: str
) -> None:
    told = [each for story in explained(field, spec, scheme, hours=4, jobs=4) for each in story.happenings]
    verdicts = {Kind.BOUGHT: Choice.ACQUIRE, Kind.WAITED: Choice.WAIT, Kind.RENEWED: Choice.RENEW}
    verdicts |= {Kind.LAPSED: Choice.LAPSE}
    seen = Counter(each.kind for each in told)
    assert seen[Kind.WAITED]
    assert scheme == "on-demand" or (seen[Kind.BOUGHT] and seen[Kind.RENEWED] + seen[Kind.LAPSED])
    for each in told:
        if each.kind not in verdicts:
            assert each.decision is None
            continue
        assert each.decision is not None, each
        assert each.decision.verdict is verdicts[each.kind]
        assert each.decided_s is not None
        chosen = each.decision.chosen
        if chosen is not None:
            assert each.life is not None
            made = (each.life.market, each.life.count, each.life.bid_micros)
            assert (chosen.market, chosen.count, chosen.bid_micros) == made
            assert all(candidate.why_not for candidate in each.decision.candidates[1:])
        lead_s = each.at_s - each.decided_s
        assert lead_s == 0 if each.kind in (Kind.BOUGHT, Kind.WAITED) else 120 < lead_s <= 240


def test_a_renewal_is_told_with_its_hour_and_when_it_was_decided(field: BacktestInputs, spec: BacktestSpec) -> None:
    records = [story_json(story)["happenings"] for story in explained(field, spec, "proteus", hours=4, jobs=6)]
    told = [each for record in records for each in record if each["kind"] in ("renewed", "lapsed")]
    assert {each["kind"] for each in told} == {"renewed", "lapsed"}
    for each in told:
        assert each["decided"] < each["at"]
        assert "without it" in each["reason"]


def test_what_the_engine_did_not_do_has_no_reason(field: BacktestInputs, spec: BacktestSpec) -> None:
    cell, start_s = Cell("proteus", "all", 2), int(plan(field, spec).starts_s[2][0])
    reasons = explainer(field, spec, cell, start_s)
    assert reasons is not None
    story = job_story(field, spec, cell, start_s, reasons)
    first = story.lives[0]
    waited = next(each for each in story.happenings if each.kind is Kind.WAITED)
    assert reasons.choice(waited.at_s, None, ()) is None
    assert reasons.choice(waited.at_s, None, story.held_at(waited.at_s)) is waited.decision
    assert reasons.choice(start_s, first, ()) is not None
    assert reasons.choice(start_s, None, ()) is None
    assert reasons.choice(start_s, replace(first, bid_micros=first.bid_micros + 1), ()) is None
    assert reasons.choice(start_s, first, (replace(first, number=2, count=1),)) is None
    assert reasons.hour(first, first.granted_s) is None  # decided by buying it
    assert reasons.hour(replace(first, count=1), first.granted_s + HOUR_S) is None


def test_reasons_change_nothing_of_what_is_told(field: BacktestInputs, spec: BacktestSpec) -> None:
    for plain, reasoned in zip(stories(field, spec, "proteus"), explained(field, spec), strict=True):
        kept = [each for each in reasoned.happenings if each.kind is not Kind.WAITED]
        assert [text_of(each, plain) for each in plain.happenings] == [text_of(each, reasoned) for each in kept]


def test_who_knows_what_comes_has_no_reasons(field: BacktestInputs, spec: BacktestSpec) -> None:
    assert explainer(field, spec, Cell("oracle", "all", 2), T0 + 7 * 86_400) is None


def test_for_machines(field: BacktestInputs, spec: BacktestSpec) -> None:
    story = explained(field, spec)[0]
    record = story_json(story)
    assert json.loads(json.dumps(record)) == record
    assert record["cost_usd"] == pytest.approx(record["spot_usd"] + record["reliable_usd"])
    first = record["happenings"][0]
    assert (first["kind"], first["allocation"]) == ("bought", 1)
    assert first["candidates"][0]["market"] == first["market"]
    assert first["candidates"][0]["bid_usd"] == first["bid_usd"]


# Phases


def test_a_phase_is_as_high_as_the_cost_per_work_that_was_decided_for(
    field: BacktestInputs, spec: BacktestSpec
) -> None:
    """The next decision names E of what is held: that of the phase, when no time has passed but for the hours' ends."""
    story = max(explained(field, spec), key=lambda each: len(each.lives))
    found = phases(field, story)
    assert found[0].what == "+#1"
    assert found[0].when == "0:00"
    assert len(found) <= 12
    for phase in found:
        assert phase.blocks[0].reliable
        assert all(block.cost_per_work >= 0 for block in phase.blocks)
    sums = [sum(block.cost_per_work for block in phase.blocks) for phase in found]
    assert sums[1] < sums[0], "the second allocation shares the cost of the reliable machines"


def test_nothing_held_has_no_blocks(field: BacktestInputs, spec: BacktestSpec, tmp_path: Path) -> None:
    bare = spec.model_copy(update={"reliable_count": 0, "schemes": ["proteus"]})
    on = open_inputs(bare, quiet)
    for story in stories(on, bare, "proteus"):
        for phase in phases(on, story):
            assert all(not block.reliable for block in phase.blocks)
