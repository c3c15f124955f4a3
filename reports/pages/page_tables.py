"""The tables of a job's report: the chart as text, decisions, costs to the micro-dollar, parameters and links."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from statistics import median
from typing import Any
from urllib.parse import quote

from proteus_spot.bidding.engine.events import TickDue
from proteus_spot.bidding.engine.orders import Acquire, Lapse, Order, Renew
from proteus_spot.bidding.facts.known import SHOWN_H, MarketKnown
from proteus_spot.bidding.market.model import HOUR_S, EndCause, Market, Tier
from proteus_spot.bidding.market.money import Micros, usd
from proteus_spot.bidding.policies.base import Choice
from proteus_spot.infra.masking import masked
from proteus_spot.infra.processes.surroundings import proteus_command
from proteus_spot.infra.state.records import LedgerKind, LedgerLine
from proteus_spot.reports.pages.job_page import DecisionRow, Link, PageFigure, Table
from proteus_spot.reports.pages.job_series import DecisionRecord, JobFacts, decisions, marks, on_demand_reference

#: Keys of a result with a value per clock, or per change of nodes or shards.
_SERIES = frozenset({"losses", "timeline", "held", "changes", "stalls"})
#: Maximum number of values of a list that are written out.
_MOST_VALUES = 64
#: URL schemes that a browser opens.
_OPENED = ("file://", "https://", "http://")
#: Maximum number of rows of the table of progress.
_PROGRESS_ROWS = 24


def elapsed(seconds: float) -> str:
    """Return a time after the job was recorded, as ``h:mm:ss``."""
    total = int(abs(seconds))
    sign = "−" if seconds < 0 and total else ""
    return f"{sign}{total // 3600}:{total // 60 % 60:02}:{total % 60:02}"


def utc(at_s: float) -> str:
    """Return a market time as text, to the second."""
    return f"{datetime.fromtimestamp(int(at_s), UTC):%Y-%m-%d %H:%M:%S}"


def short(facts: JobFacts, allocation_id: str) -> str:
    """Return the id of an allocation without the prefix of the job's id."""
    return allocation_id.removeprefix(f"{facts.job.job_id}-")


def figures(facts: JobFacts) -> tuple[PageFigure, ...]:
    """Return the figures at the top of the report."""
    spent = sum(line.amount_micros for line in facts.ledger)
    refunded = -sum(line.amount_micros for line in facts.ledger if line.kind is LedgerKind.REFUND)
    reference = on_demand_reference(facts)
    found = [PageFigure("Cost", usd(spent), f"{usd(spent + refunded)} charged, {usd(refunded)} refunded")]
    if reference and reference[-1][1] > 0:
        on_demand = reference[-1][1]
        found.append(PageFigure("Against on-demand", f"{spent / on_demand:.0%}", f"of {usd(round(on_demand))}"))
    trained = "trained" if facts.job.ended_at_s is not None else "so far"
    found.append(PageFigure("Market time", elapsed(facts.trained_s - facts.job.created_at_s), trained))
    if facts.deadline_s is not None:
        late_s = (facts.last_s if facts.job.ended_at_s is None else facts.job.ended_at_s) - facts.deadline_s
        kept = "kept" if facts.job.ended_at_s is not None else f"in {elapsed(-late_s)}"
        value = f"missed by {elapsed(late_s)}" if late_s > 0 else kept
        found.append(PageFigure("Deadline", value, f"{utc(facts.deadline_s)} UTC of the market"))
    taken = [r for r in facts.allocations if r.end_cause is EndCause.EVICTED]
    bought = sum(r.allocation.tier is Tier.TRANSIENT for r in facts.allocations)
    noticed = sum(kind == "notice" for _, kind, _, _ in marks(facts))
    found.append(PageFigure("Evictions", str(len(taken)), f"of {bought} spot allocations, {noticed} with notice"))
    result: Mapping[str, Any] = facts.job.result or {}
    last: Mapping[str, Any] = facts.progress[-1].payload if facts.progress else {}
    clocks = result.get("clocks", last.get("clock"))
    losses = [p.payload["loss"] for p in facts.progress if p.payload.get("loss") is not None]
    loss = f"loss {losses[-1]:.4g}" if losses else "no loss yet"
    found.append(PageFigure("Clocks", "0" if clocks is None else f"{clocks:,}", loss))
    passes = result.get("passes", last.get("passes"))
    if passes is not None:
        found.append(PageFigure("Passes", f"{passes:.4g}", "over the data"))
    for name, value in (result.get("driver_figures") or last.get("driver_figures") or {}).items():
        if value is not None:
            found.append(PageFigure(name.replace("_", " ").capitalize(), f"{value:,.6g}", "a figure of the driver"))
    if isinstance(result.get("accuracy"), float):
        found.append(PageFigure("Held-out accuracy", f"{result['accuracy']:.2%}", "of the model that was saved"))
    for name, value in result.get("metrics", {}).items():
        if name != "accuracy" and value is not None:
            found.append(PageFigure(f"Held-out {name}", f"{value:.4g}", "of the model that was saved"))
    return tuple(found)


def decision_rows(facts: JobFacts) -> tuple[DecisionRow, ...]:
    """Return the decisions in order; consecutive equal decisions without candidates become one row."""
    records = decisions(facts)
    market = {r.allocation_id: r.allocation.market for r in facts.allocations}
    rows: list[DecisionRow] = []
    first = 0
    while first < len(records):
        until = first + 1
        while until < len(records) and _same_wait(records[first], records[until]):
            until += 1
        rows.append(_decision_row(facts, records, first, until, market))
        first = until
    return tuple(rows)


def _same_wait(one: DecisionRecord, other: DecisionRecord) -> bool:
    a, b = one.order.decision, other.order.decision
    same = a.verdict is b.verdict is Choice.WAIT and a.reason == b.reason
    return same and not a.candidates and not b.candidates


def _decision_row(
    facts: JobFacts, said: Sequence[DecisionRecord], first: int, until: int, market: Mapping[str, Market]
) -> DecisionRow:
    one, last = said[first], said[until - 1]
    decision = one.order.decision
    time = elapsed(one.at_s - facts.t0)
    reason = decision.reason
    if until - first > 1:
        time += f" – {elapsed(last.at_s - facts.t0)}"
        reason += f" (repeated {until - first} times)"
    if one.times > 1:
        reason += f" (ordered {one.times} times)"
    chosen = decision.chosen
    cost = chosen.cost_per_work if chosen is not None else decision.cost_per_work
    return DecisionRow(
        index=first,
        at_s=one.at_s - facts.t0,
        time=time,
        verdict=str(decision.verdict),
        subject=_subject(one.order, market),
        cost_per_work=f"{cost:.5f}" if cost < float("inf") else "no work",
        reason=reason,
        candidates=len(decision.candidates),
    )


def _subject(order: Order, market: Mapping[str, Market]) -> str:
    match order:
        case Acquire():
            bid = "on demand" if order.bid_micros is None else f"bid {usd(order.bid_micros)}"
            return f"{order.count} × {order.market}, {bid}"
        case Renew() | Lapse():
            where = market.get(order.allocation_id, order.allocation_id)
            part = f"{len(order.instance_ids)} of " if isinstance(order, Lapse) and order.instance_ids else ""
            return f"{part}{where}, hour {order.hour}"
    return "—"


def progress_tables(facts: JobFacts) -> tuple[Table, ...]:
    """Return the tables that give the content of the chart as text."""
    return (_allocations(facts), _prices(facts), _progress(facts), _marks(facts))


def money_tables(facts: JobFacts) -> tuple[Table, ...]:
    """Return the sums of the ledger by market and kind, and its lines."""
    record = {r.allocation_id: r for r in facts.allocations}
    groups: dict[tuple[str, str], list[LedgerLine]] = {}
    for line in facts.ledger:
        allocation = record[line.allocation_id].allocation
        groups.setdefault((str(allocation.tier), str(allocation.market)), []).append(line)
    rows = [(tier, market, *_sums(lines)) for (tier, market), lines in sorted(groups.items())]
    by_market = Table(
        "by-market",
        "Money by tier and market",
        ("tier", "market", "charges", "charged", "refunds", "refunded", "net"),
        tuple(rows),
        frozenset(range(2, 7)),
        (("all", "", *_sums(facts.ledger)),),
    )
    lines = tuple(
        (
            elapsed(line.at_s - facts.t0),
            short(facts, line.allocation_id),
            str(record[line.allocation_id].allocation.market),
            str(line.hour_index),
            str(line.kind),
            usd(line.price_micros, 6),
            usd(line.amount_micros, 6),
            line.note,
        )
        for line in facts.ledger
    )
    total = usd(sum(line.amount_micros for line in facts.ledger), 6)
    ledger = Table(
        "ledger",
        "Ledger: every charge and refund, in order of time",
        ("time", "allocation", "market", "hour", "kind", "price an hour", "amount", "note"),
        lines,
        frozenset({0, 3, 5, 6}),
        (("", "sum", "", "", "", "", total, ""),),
    )
    return (by_market, ledger)


def _sums(lines: Iterable[LedgerLine]) -> tuple[str, str, str, str, str]:
    kept = list(lines)
    charges = [line.amount_micros for line in kept if line.kind is LedgerKind.CHARGE]
    refunds = [line.amount_micros for line in kept if line.kind is LedgerKind.REFUND]
    net = usd(sum(charges) + sum(refunds), 6)
    return str(len(charges)), usd(sum(charges), 6), str(len(refunds)), usd(sum(refunds), 6), net


def about_tables(facts: JobFacts) -> tuple[Table, ...]:
    """Return the parameters and the result of the job, without series over clocks, which the chart shows."""
    job = facts.job
    result = {
        key: value for key, value in (job.result or {}).items() if not (key in _SERIES or key.endswith("_by_clock"))
    }
    outcome = [("state", str(job.state)), ("recorded", utc(job.created_at_s))]
    outcome += [] if job.ended_at_s is None else [("ended", utc(job.ended_at_s))]
    outcome += [] if job.failure is None else [("failure", job.failure)]
    outcome += [] if job.stop_by is None else [("stop requested by", job.stop_by)]
    return (
        Table("parameters", "Parameters of the job", ("parameter", "value"), tuple(_flat(job.spec))),
        Table("result", "Result", ("what", "value"), (*outcome, *_flat(result))),
    )


def market_table(known: Iterable[MarketKnown]) -> tuple[Table, ...]:
    """Return what is known of the markets at the end of the report; none where bids decide."""
    rows = [
        (
            str(each.market),
            "" if each.share_granted is None else f"{each.share_granted.value:.0%}",
            f"{each.grant.chance:.0%}, {each.grant.size:.0%}",
            *(f"{each.survival_now.lives(hours * HOUR_S):.0%}" for hours in SHOWN_H),
            f"{each.survival.losses} in {each.survival.exposure_s / HOUR_S:.1f}",
            "" if each.score is None else f"{each.score.value:.0f}",
            "" if each.refused is None else each.refused[0],
            "" if each.rebalances is None else f"{each.rebalances.value:.0f}, from the {each.rebalances.source}",
            "" if each.taken_after is None else f"{each.taken_after.value:.0%}",
        )
        for each in known
    ]
    heads = ("market", "granted", "chance and share of a grant", *(f"lives {hours} h" for hours in SHOWN_H))
    heads = (*heads, "losses in machine-hours", "placement score", "last refusal")
    heads = (*heads, "rebalance recommended within the hour", "taken within an hour of one")
    return (Table("markets", "What is known of the markets", heads, tuple(rows)),) if rows else ()


def links(facts: JobFacts, model_url: str, command: str) -> tuple[Link, ...]:
    """Return the locations of the model and the data, and the commands that use them.

    Parameters
    ----------
    model_url : location of the model; empty if there is none.
    command : the command that repeats or continues the job; empty if it is not recorded.
    """
    training = facts.job.spec.get("training")
    training = training if isinstance(training, Mapping) else {}
    data, app, code = (str(training.get(name) or "") for name in ("data", "app", "code"))
    found = []
    if model_url:
        found.append(Link("model", masked(model_url), _opened(model_url)))
    if data:
        found.append(Link("data", masked(data), _opened(f"file://{quote(data)}" if data.startswith("/") else data)))
    if model_url and data:
        found.append(Link("predict", predict_command(model_url, data, app, code)))
    if command:
        found.append(Link("go on" if facts.job.ended_at_s is None else "repeat", masked(command)))
    return tuple(found)


def predict_command(model: str, data: str, app: str, code: str) -> str:
    """Return the command that predicts with the model, quoted for a shell."""
    words = ["--data", data, "--out", "-"]
    if ":" in app:  # the user's own code is run only if named
        words = [app, *words, *(["--code", code] if code else [])]
    return masked(proteus_command("predict", model, *words))


def _opened(url: str) -> str:
    return url if url.startswith(_OPENED) and masked(url) == url else ""


def _flat(value: Any, name: str = "") -> Iterable[tuple[str, str]]:
    """Yield a JSON value as rows (dotted name, text)."""
    if isinstance(value, Mapping) and value:
        for key, part in value.items():
            yield from _flat(part, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple) and any(isinstance(part, Mapping | list | tuple) for part in value):
        for number, part in enumerate(value, start=1):
            yield from _flat(part, f"{name}.{number}")
    elif isinstance(value, list | tuple) and len(value) > _MOST_VALUES:
        yield name, f"{len(value)} values"
    elif isinstance(value, list | tuple):
        yield name, ", ".join(map(_plain, value)) or "none"
    elif name:
        yield name, _plain(value)


def _plain(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else masked(str(value))


def _allocations(facts: JobFacts) -> Table:
    net: dict[str, Micros] = {}
    for line in facts.ledger:
        net[line.allocation_id] = net.get(line.allocation_id, 0) + line.amount_micros
    ends = {EndCause.EVICTED: "evicted", EndCause.USER: "let go", EndCause.FAILED: "failed", None: "held"}
    rows = tuple(
        (
            short(facts, r.allocation_id),
            str(r.allocation.tier),
            str(r.allocation.market),
            str(r.allocation.count),
            str(facts.vcpus(r)),
            "on demand" if r.allocation.bid_micros is None else usd(r.allocation.bid_micros),
            elapsed(r.since_s - facts.t0),
            "—" if r.ended_at_s is None else elapsed(r.ended_at_s - facts.t0),
            ends[r.end_cause],
            usd(net.get(r.allocation_id, 0)),
        )
        for r in facts.allocations
    )
    columns = ("allocation", "tier", "market", "machines", "vCPUs", "bid", "from", "to", "end", "net cost")
    total = usd(sum(net.values()))
    foot = (("sum", *[""] * 8, total),)
    return Table("allocations", "Allocations: the footprint", columns, rows, frozenset({3, 4, 5, 6, 7, 9}), foot)


def _prices(facts: JobFacts) -> Table:
    ticks = [item for _, item in facts.journal if isinstance(item, TickDue)]
    rows = []
    for market in facts.markets():
        seen = [tick.prices[market] for tick in ticks if market in tick.prices]
        kind = facts.types.get(market.instance_type)
        bought = [r for r in facts.allocations if r.allocation.market == market and r.allocation.tier is Tier.TRANSIENT]
        rows.append(
            (
                str(market),
                str(len(seen)),
                *((usd(min(seen)), usd(round(median(seen))), usd(max(seen))) if seen else ("—", "—", "—")),
                "—" if kind is None else usd(kind.on_demand_micros),
                str(len(bought)),
                str(sum(r.end_cause is EndCause.EVICTED for r in bought)),
            )
        )
    columns = ("market", "times seen", "lowest", "median", "highest", "on demand", "bought", "evicted")
    caption = "Prices an instance-hour, as seen at the decisions"
    return Table("prices", caption, columns, tuple(rows), frozenset(range(1, 8)), folded=True)


def _progress(facts: JobFacts) -> Table:
    points = facts.progress
    count = min(len(points), _PROGRESS_ROWS)
    picked = [points[round(i * (len(points) - 1) / max(count - 1, 1))] for i in range(count)]
    due, sums = [line.at_s for line in facts.ledger], [0]
    for line in facts.ledger:
        sums.append(sums[-1] + line.amount_micros)
    rows = tuple(
        (
            elapsed(point.at_s - facts.t0),
            _plain(point.payload.get("clock")),
            "—" if point.payload.get("loss") is None else f"{point.payload['loss']:.4g}",
            _plain(point.payload.get("stage")),
            _plain(point.payload.get("ready")),
            str(_held_vcpus(facts, point.at_s)),
            usd(sums[bisect_right(due, point.at_s)]),
        )
        for point in picked
    )
    columns = ("time", "clock", "loss", "stage", "nodes ready", "vCPUs held", "spent")
    caption = f"Progress, at {count} of {len(points)} looks"
    return Table("progress", caption, columns, rows, frozenset(range(7)), folded=True)


def _held_vcpus(facts: JobFacts, at_s: float) -> int:
    return sum(
        facts.vcpus(r) for r in facts.allocations if r.since_s <= at_s and (r.ended_at_s is None or at_s < r.ended_at_s)
    )


def _marks(facts: JobFacts) -> Table:
    rows = tuple(
        (elapsed(at_s - facts.t0), kind, short(facts, name) or "—", text) for at_s, kind, name, text in marks(facts)
    )
    return Table("marks", "What happened", ("time", "what", "allocation", "detail"), rows, frozenset({0}), folded=True)
