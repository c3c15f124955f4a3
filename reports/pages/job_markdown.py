"""The page of a job in the Prefect UI, as Markdown: the whole job at one look, short enough to be stored often."""

import base64
import re
from collections.abc import Sequence

from proteus_spot.bidding.economics.job_model import UNITS
from proteus_spot.bidding.engine.orders import Acquire
from proteus_spot.bidding.market.model import HOUR_S, Tier
from proteus_spot.bidding.market.money import Micros, usd
from proteus_spot.reports.pages.job_page import ReportPage, Table
from proteus_spot.reports.pages.job_series import JobFacts
from proteus_spot.reports.pages.page_tables import elapsed, utc

#: Candidates of the last purchase that are shown, the best first.
_CANDIDATES = 8
#: Characters of Markdown and HTML that a text from elsewhere must not contain as such.
_MARKED = re.compile(r"[\\`*_{}\[\]<>#|&~!]")


def job_markdown(
    facts: JobFacts, page: ReportPage, costs: Table, picture: bytes, report_url: str, commands: Sequence[str]
) -> str:
    """Return the page: state, figures, picture, next commands, money, and the last purchase with its candidates.

    Parameters
    ----------
    page : the job's report, whose figures are shown.
    costs : costs by market, tier and use.
    picture : PNG of the job over time; empty: none is shown.
    report_url : location of the HTML report; empty: none.
    commands : what a user may type next.
    """
    figures = [("State", state_text(facts), eta_text(facts)), ("Machines", *machines_text(facts))]
    figures += [(each.label, each.value, each.note) for each in page.figures]
    parts = [
        f"# {text(page.job_id)}: {text(state_text(facts))}",
        _table(("", "", ""), figures),
    ]
    if picture:
        png = base64.b64encode(picture).decode()
        parts.append(f"![prices and bids, footprint, loss and dollars](data:image/png;base64,{png})")
    if commands:
        parts += ["## Next", "```\n" + "\n".join(commands) + "\n```"]
    if report_url:
        parts.append(f"Report: `{report_url}`")
    if costs.rows:
        parts += [f"## {costs.caption}", _table(costs.columns, [*costs.rows, *costs.foot])]
    parts += _last_purchase(facts)
    return "\n\n".join(parts)


def state_text(facts: JobFacts) -> str:
    """Return the state of a job, with the reason of an early end."""
    job = facts.job
    reason = job.failure or (job.result or {}).get("stopped") or ""
    return f"{job.state} ({reason})" if reason else str(job.state)


def machines_text(facts: JobFacts) -> tuple[str, str]:
    """Return how many machines of each tier are held, and where."""
    held = [record for record in facts.allocations if record.alive]
    counts = {
        tier: sum(record.living_count for record in held if record.allocation.tier is tier) for tier in list(Tier)
    }
    where = ", ".join(f"{record.living_count} x {record.allocation.market}" for record in held)
    return f"{counts[Tier.RELIABLE]} on demand, {counts[Tier.TRANSIENT]} spot", where


def eta_text(facts: JobFacts) -> str:
    """Return when the training is expected to end, or did; empty if neither is known.

    The pace is that of the second half of the progress so far: the footprint of the beginning says little.
    """
    job = facts.job
    if job.ended_at_s is not None:
        return f"ended {utc(job.ended_at_s)} UTC of the market"
    spec = job.spec.get("training")
    points = [(point.at_s, int(point.payload.get("clock") or 0)) for point in facts.progress]
    if not isinstance(spec, dict) or not points:
        return ""
    now_s, clock = points[-1]
    ends_s = []
    if spec.get("hours"):
        ends_s.append(points[0][0] + float(spec["hours"]) * HOUR_S)
    if spec.get("clocks"):
        since_s, before = points[len(points) // 2]
        if clock > before and now_s > since_s:
            ends_s.append(now_s + (int(spec["clocks"]) - clock) * (now_s - since_s) / (clock - before))
    if not ends_s:
        return ""
    left_s = max(min(ends_s) - now_s, 0.0)
    share = (now_s - facts.t0) / (now_s - facts.t0 + left_s) if left_s else 1.0
    return f"{share:.0%} done, {elapsed(left_s)} left: about {utc(now_s + left_s)} UTC of the market"


def text(value: str) -> str:
    """Return a text of any origin on one line, so that Markdown shows it as it is."""
    return _MARKED.sub(lambda mark: f"&#{ord(mark[0])};", " ".join(value.split()))


def _last_purchase(facts: JobFacts) -> list[str]:
    bought = [(at_s, item) for at_s, item in facts.journal if isinstance(item, Acquire)]
    if not bought:
        return []
    at_s, order = bought[-1]
    rows = [
        (
            str(candidate.market),
            str(candidate.count),
            "on demand" if candidate.bid_micros is None else usd(candidate.bid_micros),
            f"{candidate.eviction_prob:.1%}",
            f"{candidate.cost_per_work:.5f}",
            candidate.why_not,
        )
        for candidate in order.decision.candidates[:_CANDIDATES]
    ]
    per_work = f"$ per {UNITS[facts.unit]}-hour of work"
    columns = ("market", "count", "bid", "eviction within the hour", per_work, "why not")
    what = f"{order.count} x {order.market}, {_bid(order.bid_micros)}"
    lines = [f"## Last purchase, at {elapsed(at_s - facts.t0)}", f"{text(what)}: {text(order.decision.reason)}"]
    return [*lines, _table(columns, rows)] if rows else lines


def _bid(bid_micros: Micros | None) -> str:
    return "on demand" if bid_micros is None else f"at a bid of {usd(bid_micros)}"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *([text(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
