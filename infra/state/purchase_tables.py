"""The tables of money: what was ordered, what that bought, and what it cost."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Row, func, select, update

from bidding.market.model import Allocation, EndCause
from bidding.market.money import Micros
from infra.state.base import Tables, columns, one, plain, same
from infra.state.database import insert_or
from infra.state.records import (
    AllocationRecord,
    IllegalTransition,
    Intent,
    IntentConflict,
    IntentState,
    Json,
    LedgerKind,
    LedgerLine,
    allocation_from_columns,
    market_columns,
)
from infra.state.schema import allocations, intents, jobs, ledger


class PurchaseTables(Tables):
    """Intents, allocations and the ledger."""

    def plan(self, order_id: str, job_id: str, kind: str, token: str | None, params: Json, now_s: float) -> Intent:
        """Write an order down before it is carried out, or return the same one that is there.

        Raises
        ------
        IntentConflict
            If `order_id`, or `token`, stands for another order.
        """
        row = {"order_id": order_id, "job_id": job_id, "kind": kind, "token": token, "params": plain(params)}
        fresh = row | {"state": IntentState.PLANNED.value, "planned_at_s": now_s}
        with self.write() as connection:
            one(connection, select(jobs.c.job_id).where(jobs.c.job_id == job_id), "job", job_id)
            connection.execute(insert_or(connection, intents).values(fresh).on_conflict_do_nothing())
            found = connection.execute(select(intents).where(intents.c.order_id == order_id)).one_or_none()
            if found is None or not same(found, row):
                raise IntentConflict(f"order {order_id}: it, or its token {token}, stands for another order already")
        return _intent(found)

    def settle(self, order_id: str, state: IntentState, outcome: Json, now_s: float) -> Intent:
        """Write down what became of an order; the same state again changes nothing.

        Raises
        ------
        IllegalTransition
            If it was settled otherwise before, or `state` is no outcome.
        """
        if state is IntentState.PLANNED:
            raise IllegalTransition(f"order {order_id}: planned is no outcome")
        query = select(intents).where(intents.c.order_id == order_id).with_for_update()
        with self.write() as connection:
            intent = _intent(one(connection, query, "order", order_id))
            if intent.state is state:
                return intent
            if intent.state is not IntentState.PLANNED:
                raise IllegalTransition(f"order {order_id}: is {intent.state}, and {state} cannot follow")
            new = {"state": state.value, "outcome": plain(outcome), "settled_at_s": now_s}
            connection.execute(update(intents).where(intents.c.order_id == order_id).values(new))
            return _intent(one(connection, query, "order", order_id))

    def intents(self, job_id: str, states: Sequence[IntentState] = ()) -> list[Intent]:
        """Return the intents of a job, or those in one of `states`, oldest first."""
        query = select(intents).where(intents.c.job_id == job_id).order_by(intents.c.planned_at_s, intents.c.order_id)
        if states:
            query = query.where(intents.c.state.in_([state.value for state in states]))
        with self.read() as connection:
            return [_intent(row) for row in connection.execute(query)]

    def record_allocation(
        self, job_id: str, order_id: str, allocation: Allocation, instance_ids: Sequence[str]
    ) -> AllocationRecord:
        """Write down what an order bought, or return the same that is there.

        Raises
        ------
        IntentConflict
            If the order, or the allocation's id, stands for another purchase.
        """
        row = market_columns(allocation) | {
            "job_id": job_id,
            "order_id": order_id,
            "instance_ids": list(instance_ids),
        }
        with self.write() as connection:
            one(connection, select(jobs.c.job_id).where(jobs.c.job_id == job_id), "job", job_id)
            fresh = row | {"instance_ends": {}}
            connection.execute(insert_or(connection, allocations).values(fresh).on_conflict_do_nothing())
            query = select(allocations).where(allocations.c.allocation_id == allocation.allocation_id)
            found = connection.execute(query).one_or_none()
            if found is None or not same(found, row):
                raise IntentConflict(
                    f"allocation {allocation.allocation_id}: it, or its order {order_id}, stands for another purchase"
                )
        return _allocation(found)

    def end_allocation(self, allocation_id: str, ended_at_s: int, cause: EndCause) -> AllocationRecord:
        """Write down the end of an allocation as the market tells it; the same end again changes nothing.

        Raises
        ------
        IllegalTransition
            If it ended otherwise before, or would end before it began.
        """
        query = select(allocations).where(allocations.c.allocation_id == allocation_id).with_for_update()
        with self.write() as connection:
            record = _allocation(one(connection, query, "allocation", allocation_id))
            if (record.ended_at_s, record.end_cause) == (ended_at_s, cause):
                return record
            if record.ended_at_s is not None:
                raise IllegalTransition(
                    f"allocation {allocation_id}: ended at {record.ended_at_s} ({record.end_cause}), "
                    f"not at {ended_at_s} ({cause})"
                )
            if ended_at_s < record.allocation.launched_at_s:
                raise IllegalTransition(f"allocation {allocation_id}: cannot end at {ended_at_s}, before its launch")
            new = {"ended_at_s": ended_at_s, "end_cause": cause.value}
            connection.execute(update(allocations).where(allocations.c.allocation_id == allocation_id).values(new))
            return _allocation(one(connection, query, "allocation", allocation_id))

    def record_instance_ends(self, allocation_id: str, ends: Mapping[str, tuple[int, EndCause]]) -> AllocationRecord:
        """Write down the ends of single instances as the market tells them; an end once written never changes.

        All instances of an allocation that ended have ended, so nothing is added to it then. Instances that are not
        of the allocation are passed over.

        Parameters
        ----------
        ends : (ended_at_s, cause) by instance id.

        Raises
        ------
        IllegalTransition
            If an instance would end before the allocation began.
        """
        query = select(allocations).where(allocations.c.allocation_id == allocation_id).with_for_update()
        with self.write() as connection:
            record = _allocation(one(connection, query, "allocation", allocation_id))
            new = {
                name: ends[name] for name in record.instance_ids if name in ends and name not in record.instance_ends
            }
            if not record.alive or not new:
                return record
            for name, (ended_at_s, _) in new.items():
                if ended_at_s < record.allocation.launched_at_s:
                    raise IllegalTransition(
                        f"allocation {allocation_id}: {name} cannot end at {ended_at_s}, before its launch"
                    )
            rows = {name: [at_s, cause.value] for name, (at_s, cause) in {**record.instance_ends, **new}.items()}
            changed = update(allocations).where(allocations.c.allocation_id == allocation_id)
            connection.execute(changed.values({"instance_ends": rows}))
            return _allocation(one(connection, query, "allocation", allocation_id))

    def allocations(self, job_id: str, *, alive: bool | None = None) -> list[AllocationRecord]:
        """Return the allocations of a job (all, the held ones, the ended ones), oldest first."""
        query = select(allocations).where(allocations.c.job_id == job_id)
        query = query.order_by(allocations.c.launched_at_s, allocations.c.allocation_id)
        if alive is not None:
            query = query.where(allocations.c.ended_at_s.is_(None) if alive else allocations.c.ended_at_s.is_not(None))
        with self.read() as connection:
            return [_allocation(row) for row in connection.execute(query)]

    def add_lines(self, lines: Sequence[LedgerLine]) -> None:
        """Add lines to the ledger; those whose entry is there already are left as they are."""
        rows = [
            {
                "entry_id": line.entry_id,
                "job_id": line.job_id,
                "allocation_id": line.allocation_id,
                "hour_index": line.hour_index,
                "kind": line.kind.value,
                "at_s": line.at_s,
                "price_micros": line.price_micros,
                "amount_micros": line.amount_micros,
                "note": line.note,
            }
            for line in lines
        ]
        with self.write() as connection:
            if rows:
                statement = insert_or(connection, ledger).on_conflict_do_nothing(index_elements=["entry_id"])
                connection.execute(statement, rows)

    def ledger(self, job_id: str) -> list[LedgerLine]:
        """Return the ledger of a job, in order of time, then of allocation, hour and kind."""
        query = select(ledger).where(ledger.c.job_id == job_id)
        query = query.order_by(ledger.c.at_s, ledger.c.allocation_id, ledger.c.hour_index, ledger.c.kind)
        with self.read() as connection:
            return [_line(row) for row in connection.execute(query)]

    def spent(self, job_id: str) -> Micros:
        """Return the money spent on a job: the sum of its ledger."""
        query = select(func.coalesce(func.sum(ledger.c.amount_micros), 0)).where(ledger.c.job_id == job_id)
        with self.read() as connection:
            return int(connection.execute(query).scalar_one())


def _intent(row: Row[Any]) -> Intent:
    found = columns(row)
    return Intent(**(found | {"state": IntentState(found["state"])}))


def _allocation(row: Row[Any]) -> AllocationRecord:
    found = columns(row)
    cause = found["end_cause"]
    return AllocationRecord(
        job_id=found["job_id"],
        allocation=allocation_from_columns(found),
        instance_ids=tuple(found["instance_ids"]),
        order_id=found["order_id"],
        ended_at_s=found["ended_at_s"],
        end_cause=None if cause is None else EndCause(cause),
        instance_ends={name: (at_s, EndCause(why)) for name, (at_s, why) in found["instance_ends"].items()},
    )


def _line(row: Row[Any]) -> LedgerLine:
    found = columns(row)
    del found["entry_id"]
    return LedgerLine(**(found | {"kind": LedgerKind(found["kind"])}))
