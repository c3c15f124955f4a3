"""Phases of a job as in the paper's Figure 6: expected cost of work between changes of its footprint."""

from collections.abc import Iterator
from itertools import groupby

from proteus_spot.bidding.backtest.parameters import JobParameters
from proteus_spot.bidding.backtest.replay.engine_replay import job_model
from proteus_spot.bidding.market.model import HOUR_S
from proteus_spot.bidding.market.money import MICROS_PER_DOLLAR
from proteus_spot.bidding.policies.base import MarketView
from proteus_spot.bidding.policies.footprint import Part, part, per_work
from proteus_spot.reports.pictures.backtest_pictures import Phase, PriceBlock
from proteus_spot.studies.backtest.backtest_inputs import BacktestInputs
from proteus_spot.studies.backtest.job_story import AllocationLife, Kind, Story, StoryEvent

#: Maximum number of phases that are readable beside one another.
_MOST = 12
_CHANGES = {Kind.BOUGHT: "+", Kind.EVICTED: "taken ", Kind.LAPSED: "let go "}


def phases(field: BacktestInputs, story: Story) -> list[Phase]:
    """Return the phases of a job, those of one second as one; at most the first `_MOST`.

    Notes
    -----
    A block is C of the allocation, expected until its billing hour ends, over W of the whole footprint, so that a phase
    is as high as E. Source: Proteus (EuroSys 2017), Figure 6 and equations (1)-(4).
    Differs: work is in vCPU-hours.
    """
    changed = [each for each in story.happenings if each.kind in _CHANGES]
    found = []
    for at_s, happened in groupby(changed, key=lambda each: each.at_s):
        minutes = (at_s - story.start_s) // 60
        what = "\n".join(_words(list(happened)))
        found.append(Phase(f"{minutes // 60}:{minutes % 60:02}", what, tuple(_blocks(field, story, at_s))))
        if len(found) == _MOST:
            break
    return found


def _words(happened: list[StoryEvent]) -> Iterator[str]:
    for kind, sign in _CHANGES.items():
        numbers = [f"#{each.life.number}" for each in happened if each.kind is kind and each.life is not None]
        if numbers:
            yield sign + (", ".join(numbers) if len(numbers) < 3 else f"{numbers[0]} … {numbers[-1]}")


def _blocks(field: BacktestInputs, story: Story, at_s: int) -> Iterator[PriceBlock]:
    setting = story.setting
    parts: list[Part] = []
    names: list[str] = []
    if setting.reliable_count:
        left_s = HOUR_S - (at_s - story.start_s) % HOUR_S
        working = setting.reliable_vcpus * setting.reliable_works
        parts.append(part(0.0, HOUR_S, setting.reliable_micros, setting.reliable_count, working, left_s))
        names.append("reliable")
    for life in story.held_at(at_s):
        parts.append(_held(field, setting, life, at_s))
        names.append(f"#{life.number}")
    if not parts:
        return
    view = MarketView(at_s, job_model(setting), {}, field.types, (), field.evictions)
    work = float(per_work(parts, view, resized=False)[2])
    for name, block in zip(names, parts, strict=True):
        if work > 0:
            yield PriceBlock(name, float(block.cost_usd) / work, reliable=name == "reliable")


def _held(field: BacktestInputs, setting: JobParameters, life: AllocationLife, at_s: int) -> Part:
    price = field.traces[life.market].price_at(at_s) or 0
    beta, median_s = field.evictions.of_bid(life.market, life.bid_micros - price)
    left_s = HOUR_S - (at_s - life.granted_s) % HOUR_S
    vcpu = field.types[life.market.instance_type].vcpu
    job = job_model(setting)
    refunded = job.is_refunded(first_hour=at_s < life.granted_s + HOUR_S)
    return part(beta, median_s, job.hour_micros(price), life.count, vcpu, left_s, refunded=refunded)


def dollars_for(micros: int, vcpus: int, of_vcpus: int) -> float:
    """Return the hourly price of `vcpus` vCPUs in dollars, given that of a machine with `of_vcpus`."""
    return micros / MICROS_PER_DOLLAR * vcpus / of_vcpus
