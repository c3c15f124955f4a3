"""The story of a simulated job for machines."""

from typing import Any

from bidding.backtest.outcomes import Outcome
from bidding.market.model import HOUR_S
from bidding.market.money import to_dollars
from bidding.policies.base import Candidate
from tasks.backtest.job_story import Happening, Story, text_of
from tasks.backtest.windows import iso


def story_json(story: Story) -> dict[str, Any]:
    """Return the story for machines."""
    row = {column.name.lower(): int(story.row[column]) for column in Outcome}
    return {
        "scheme": story.cell.scheme,
        "zone": story.cell.zone,
        "hours": story.cell.hours,
        "start": iso(story.start_s),
        "end": iso(story.end_s),
        "relative_cost": row["cost_micros"] / story.reference.job_micros(story.cell.hours),
        "relative_runtime": row["runtime_s"] / (story.cell.hours * HOUR_S),
        "cost_usd": to_dollars(row["cost_micros"]),
        "spot_usd": to_dollars(story.spot_micros),
        "reliable_usd": to_dollars(story.reliable_micros),
        "outcome": row,
        "happenings": [_happening_json(each, story) for each in story.happenings],
    }


def _happening_json(happening: Happening, story: Story) -> dict[str, Any]:
    life, decision = happening.life, happening.decision
    return {
        "at": iso(happening.at_s),
        "kind": str(happening.kind),
        "allocation": None if life is None else life.number,
        "market": None if life is None else str(life.market),
        "count": None if life is None else life.count,
        "bid_usd": None if life is None else to_dollars(life.bid_micros),
        "price_usd": None if happening.price_micros is None else to_dollars(happening.price_micros),
        "amount_usd": to_dollars(happening.amount_micros),
        "held_vcpus": happening.held_vcpus,
        "text": text_of(happening, story),
        "reason": None if decision is None else decision.reason,
        "decided": None if happening.decided_s is None else iso(happening.decided_s),
        "candidates": [] if decision is None else [_candidate_json(each) for each in decision.candidates],
    }


def _candidate_json(candidate: Candidate) -> dict[str, Any]:
    return {
        "market": str(candidate.market),
        "count": candidate.count,
        "price_usd": to_dollars(candidate.price_micros),
        "bid_usd": to_dollars(candidate.bid_micros),
        "eviction_prob": candidate.eviction_prob,
        "cost_per_work": candidate.cost_per_work,
        "why_not": candidate.why_not,
    }
