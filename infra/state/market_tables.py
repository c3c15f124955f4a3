"""The facts of markets: own requests and machines as the book has them, of all jobs, and what others say of markets.

It implements `bidding.facts.records.MarketFacts`. Requests and machines are read from the orders and the allocations,
so that there is no second record of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import Row, Select, and_, delete, insert, select

from proteus_spot.bidding.evictions.fit_capacity import Band
from proteus_spot.bidding.facts.rates import NodeWork, TypeWork
from proteus_spot.bidding.facts.records import AdvisorBand, Life, PlacementScore, Rebalance, RequestAnswer, Source
from proteus_spot.bidding.market.model import EndCause, Market
from proteus_spot.infra.state.base import Database, columns
from proteus_spot.infra.state.purchase_tables import allocation_record
from proteus_spot.infra.state.records import AllocationRecord, IntentState
from proteus_spot.infra.state.schema import allocations, intents, market_facts

_SCORE, _BAND, _ANSWER, _LIFE, _REBALANCE = "score", "band", "answer", "life", "rebalance"
#: Kind of an account's quota: its code stands where a market has its type, and the zone is empty.
_QUOTA = "quota"
#: Kind of what the nodes of a type have done in a job: the job's id stands where a market has its zone.
_WORK = "work"
Fact = PlacementScore | AdvisorBand | RequestAnswer | Life | Rebalance


class MarketTables:
    """What is known of markets, of all jobs."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def record_facts(self, facts: Iterable[Fact]) -> None:
        """Record what others say of markets."""
        rows = [_row(fact) for fact in facts]
        if rows:
            with self._database.write() as connection:
                connection.execute(insert(market_facts), rows)

    def record_rebalances(self, found: Iterable[Rebalance]) -> None:
        """Record the first rebalance recommendation of each machine, whatever its source."""
        first = {each.instance_id: each for each in sorted(found, key=lambda each: -each.at_s)}
        with self._database.write() as connection:
            kept = connection.execute(select(market_facts.c.payload).where(market_facts.c.kind == _REBALANCE))
            known = {row.payload["instance_id"] for row in kept}
            rows = [_row(each) for name, each in first.items() if name not in known]
            if rows:
                connection.execute(insert(market_facts), rows)

    def forget_facts(self, before_s: int) -> None:
        """Forget what others said of markets before a time."""
        with self._database.write() as connection:
            connection.execute(delete(market_facts).where(market_facts.c.at_s < before_s))

    def record_quotas(self, quotas: Mapping[str, int], at_s: int) -> None:
        """Record the account's quotas in vCPUs, by code, in place of those before."""
        rows = [
            {"kind": _QUOTA, "instance_type": code, "zone": "", "at_s": at_s, "payload": {"vcpus": vcpus}}
            for code, vcpus in quotas.items()
        ]
        with self._database.write() as connection:
            connection.execute(delete(market_facts).where(market_facts.c.kind == _QUOTA))
            if rows:
                connection.execute(insert(market_facts), rows)

    def quotas(self) -> dict[str, int]:
        """Return the account's quotas in vCPUs, by code, as they were last recorded."""
        with self._database.read() as connection:
            rows = connection.execute(select(market_facts).where(market_facts.c.kind == _QUOTA))
            return {row.instance_type: int(row.payload["vcpus"]) for row in rows}

    def record_work(self, work: TypeWork) -> None:
        """Record what nodes of one type have done in a job, in place of what is known of the same nodes."""
        of_job = and_(
            market_facts.c.kind == _WORK,
            market_facts.c.instance_type == work.instance_type,
            market_facts.c.zone == work.job_id,
        )
        with self._database.write() as connection:
            before = connection.scalar(select(market_facts.c.payload).where(of_job)) or {"nodes": {}}
            nodes = {name: [each.tasks, each.work, each.seconds] for name, each in work.nodes.items()}
            payload = {"app": work.app, "unit": work.unit, "nodes": before["nodes"] | nodes}
            named = {"kind": _WORK, "instance_type": work.instance_type, "zone": work.job_id}
            connection.execute(delete(market_facts).where(of_job))
            connection.execute(insert(market_facts).values(**named, at_s=work.at_s, payload=payload))

    def works(self, from_s: int) -> list[TypeWork]:
        """Return what nodes have done in jobs that worked after `from_s`, by job and type."""
        query = select(market_facts).where(market_facts.c.kind == _WORK, market_facts.c.at_s >= from_s)
        with self._database.read() as connection:
            rows = [columns(row) for row in connection.execute(query)]
        return [
            TypeWork(
                int(row["at_s"]),
                row["zone"],
                row["payload"]["app"],
                row["payload"]["unit"],
                row["instance_type"],
                {name: NodeWork(*done) for name, done in row["payload"]["nodes"].items()},
            )
            for row in rows
        ]

    def answers(self, markets: Sequence[Market], from_s: int) -> list[RequestAnswer]:
        """Return the answers to requests for spot machines from `from_s` on, oldest first."""
        # Without the request itself, which is long.
        read = (intents.c.params, intents.c.state, intents.c.outcome, intents.c.settled_at_s)
        query = select(*read, allocations.c.count.label("granted")).where(
            intents.c.kind == "acquire",
            intents.c.settled_at_s >= from_s,
            intents.c.state.in_([IntentState.DONE.value, IntentState.REFUSED.value]),
        )
        query = query.outerjoin(allocations, allocations.c.order_id == intents.c.order_id)
        wanted = set(markets)
        with self._database.read() as connection:
            own = [answer for row in connection.execute(query) if (answer := _answer(row)) is not None]
        found = [answer for answer in own if answer.market in wanted]
        found += [
            RequestAnswer(
                at_s, market, payload["asked"], payload["granted"], payload["code"], Source(payload["source"])
            )
            for market, at_s, payload in self._facts(_ANSWER, markets, from_s)
        ]
        return sorted(found, key=lambda answer: answer.at_s)

    def lives(self, markets: Sequence[Market], from_s: int, now_s: int) -> list[Life]:
        """Return the lives of spot machines that were there after `from_s`, as of `now_s`, oldest first."""
        query = select(allocations).where(
            allocations.c.bid_micros.is_not(None),
            allocations.c.instance_type.in_(sorted({market.instance_type for market in markets})),
            allocations.c.zone.in_(sorted({market.zone for market in markets})),
            allocations.c.ended_at_s.is_(None) | (allocations.c.ended_at_s >= from_s),
        )
        wanted = set(markets)
        with self._database.read() as connection:
            records = [allocation_record(row) for row in connection.execute(query)]
        records.sort(key=lambda record: record.since_s)
        holder = {name: record.allocation_id for record in records for name in record.instance_ids}
        found = [life for record in records for life in _lives(record, now_s, holder) if life.market in wanted]
        found += [
            Life(market, payload["launched_at_s"], at_s, payload["taken"], Source(payload["source"]))
            for market, at_s, payload in self._facts(_LIFE, markets, from_s)
        ]
        return sorted(found, key=lambda life: (life.launched_at_s, life.until_s))

    def scores(self, markets: Sequence[Market], from_s: int) -> list[PlacementScore]:
        """Return the placement scores from `from_s` on, oldest first."""
        rows = self._facts(_SCORE, markets, from_s)
        return [PlacementScore(at_s, market, payload["score"], payload["wanted"]) for market, at_s, payload in rows]

    def bands(self, markets: Sequence[Market]) -> list[AdvisorBand]:
        """Return the newest advisor band of each market that has one."""
        newest = {
            market: AdvisorBand(at_s, market, Band(payload["low"], payload["high"]))
            for market, at_s, payload in self._facts(_BAND, markets, 0)
        }
        return list(newest.values())

    def rebalances(self, markets: Sequence[Market], from_s: int) -> list[Rebalance]:
        """Return the rebalance recommendations from `from_s` on, oldest first, one of each machine."""
        found: dict[str, Rebalance] = {}
        for market, at_s, payload in self._facts(_REBALANCE, markets, from_s):
            name = payload["instance_id"]
            found.setdefault(name, Rebalance(at_s, market, name, Source(payload["source"])))
        return list(found.values())

    def _facts(self, kind: str, markets: Sequence[Market], from_s: int) -> list[tuple[Market, int, Mapping[str, Any]]]:
        query: Select[Any] = select(market_facts).where(_of(kind, markets), market_facts.c.at_s >= from_s)
        query = query.order_by(market_facts.c.at_s, market_facts.c.fact_id)
        wanted = set(markets)
        with self._database.read() as connection:
            rows = [columns(row) for row in connection.execute(query)]
        found = [(Market(row["instance_type"], row["zone"]), int(row["at_s"]), row["payload"]) for row in rows]
        return [each for each in found if each[0] in wanted]


def _of(kind: str, markets: Sequence[Market]) -> Any:
    return and_(
        market_facts.c.kind == kind,
        market_facts.c.instance_type.in_(sorted({market.instance_type for market in markets})),
        market_facts.c.zone.in_(sorted({market.zone for market in markets})),
    )


def _row(fact: Fact) -> dict[str, Any]:
    payload: dict[str, Any]
    match fact:
        case PlacementScore():
            kind, at_s, payload = _SCORE, fact.at_s, {"score": fact.score, "wanted": fact.wanted}
        case AdvisorBand():
            kind, at_s, payload = _BAND, fact.at_s, asdict(fact.band)
        case RequestAnswer():
            told = {"asked": fact.asked, "granted": fact.granted, "code": fact.code, "source": str(fact.source)}
            kind, at_s, payload = _ANSWER, fact.at_s, told
        case Rebalance():
            told = {"instance_id": fact.instance_id, "source": str(fact.source)}
            kind, at_s, payload = _REBALANCE, fact.at_s, told
        case Life():
            lived = {"launched_at_s": fact.launched_at_s, "taken": fact.taken, "source": str(fact.source)}
            kind, at_s, payload = _LIFE, fact.until_s, lived
    named = {"instance_type": fact.market.instance_type, "zone": fact.market.zone}
    return {"kind": kind, "at_s": at_s, "payload": payload, **named}


def _answer(row: Row[Any]) -> RequestAnswer | None:
    """Return the answer of an order; None for one of on-demand machines, and where its machines are not in the book."""
    values = columns(row)
    params, done = values["params"], values["state"] == IntentState.DONE.value
    if params.get("bid_micros") is None or (done and values["granted"] is None):
        return None
    granted = min(values["granted"], params["count"]) if done else 0
    code = "" if done else str((values["outcome"] or {}).get("code", ""))
    return RequestAnswer(int(values["settled_at_s"]), Market.parse(params["market"]), params["count"], granted, code)


def _lives(record: AllocationRecord, now_s: int, holder: Mapping[str, str]) -> list[Life]:
    """Return the lives of the machines of an allocation; one whose launch failed never lived.

    A machine that was handed over lives on in another allocation.

    Parameters
    ----------
    holder : the last allocation of each machine, by instance id.
    """
    allocation = record.allocation
    names = [*record.instance_ids, *[""] * (allocation.count - len(record.instance_ids))]
    found = []
    for name, life in zip(names, record.machines, strict=True):
        if life.end_cause is not EndCause.FAILED and holder.get(name, record.allocation_id) == record.allocation_id:
            until_s = now_s if life.ended_at_s is None else life.ended_at_s
            taken = life.end_cause is EndCause.EVICTED
            began_s = allocation.launched_at_s
            found.append(Life(allocation.market, began_s, max(until_s, began_s), taken, instance_id=name))
    return found
