"""The tables of purchases: intents, the allocations they bought, and the ledger of their cost."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Row, func, select, update

from proteus_spot.bidding.market.model import Allocation, EndCause
from proteus_spot.bidding.market.money import Micros
from proteus_spot.infra.state.base import Database, as_stored, columns, has_columns, require_row
from proteus_spot.infra.state.database import insert_or
from proteus_spot.infra.state.records import (
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
from proteus_spot.infra.state.schema import allocations, intents, jobs, ledger


class PurchaseTables:
    """Intents, allocations and the ledger."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def plan(self, order_id: str, job_id: str, kind: str, token: str | None, params: Json, now_s: float) -> Intent:
        """Record an order before it is carried out, or return the same recorded one.

        Raises
        ------
        IntentConflict
            If `order_id` or `token` belongs to another order.
        """
        row = {"order_id": order_id, "job_id": job_id, "kind": kind, "token": token, "params": as_stored(params)}
        new_row = row | {"state": IntentState.PLANNED.value, "planned_at_s": now_s}
        with self._database.write() as connection:
            require_row(connection, select(jobs.c.job_id).where(jobs.c.job_id == job_id), "job", job_id)
            connection.execute(insert_or(connection, intents).values(new_row).on_conflict_do_nothing())
            stored = connection.execute(select(intents).where(intents.c.order_id == order_id)).one_or_none()
            if stored is None or not has_columns(stored, row):
                raise IntentConflict(f"order {order_id}: the id or its token {token} belongs to another order already")
        return _intent(stored)

    def settle(self, order_id: str, state: IntentState, outcome: Json, now_s: float) -> Intent:
        """Record the outcome of an order; the same state again changes nothing.

        An order that was refused or abandoned becomes done when its machines are found after all.

        Raises
        ------
        IllegalTransition
            If another outcome is recorded, or `state` is not an outcome.
        """
        if state is IntentState.PLANNED:
            raise IllegalTransition(f"order {order_id}: planned is not an outcome")
        query = select(intents).where(intents.c.order_id == order_id).with_for_update()
        with self._database.write() as connection:
            intent = _intent(require_row(connection, query, "order", order_id))
            if intent.state is state:
                return intent
            corrects = state is IntentState.DONE and intent.state is not IntentState.PLANNED
            if intent.state is not IntentState.PLANNED and not corrects:
                raise IllegalTransition(f"order {order_id}: is {intent.state}, and {state} cannot follow")
            new = {"state": state.value, "outcome": as_stored(outcome), "settled_at_s": now_s}
            if state is IntentState.DONE:
                new["answer"] = None  # errors on the way to it are past
            else:
                new["request"] = None  # it is never sent again, and it is long
            connection.execute(update(intents).where(intents.c.order_id == order_id).values(new))
            return _intent(require_row(connection, query, "order", order_id))

    def intent(self, order_id: str) -> Intent:
        """Return an order; `UnknownRecord` if there is none."""
        with self._database.read() as connection:
            return _intent(
                require_row(connection, select(intents).where(intents.c.order_id == order_id), "order", order_id)
            )

    def find_intent(self, order_id: str) -> Intent | None:
        """Return an order, or None where there is none."""
        with self._database.read() as connection:
            row = connection.execute(select(intents).where(intents.c.order_id == order_id)).one_or_none()
        return None if row is None else _intent(row)

    def begin_sending(self, order_id: str, request: Json, now_s: float) -> Intent:
        """Record that the request of an open order is about to be sent; return the order as it was before.

        The first request is kept: the order returned holds that one. From now on the order is in doubt, until
        `end_sending` says otherwise: this process may die before it has the answer.
        """
        query = select(intents).where(intents.c.order_id == order_id).with_for_update()
        with self._database.write() as connection:
            before = _intent(require_row(connection, query, "order", order_id))
            if before.state is not IntentState.PLANNED:
                return before
            if before.request is None:
                before = replace(before, request=as_stored(request))
            new: dict[str, Any] = {"request": before.request}
            if before.doubtful_since_s is None:
                new["doubtful_since_s"] = now_s
            connection.execute(update(intents).where(intents.c.order_id == order_id).values(new))
        return before

    def end_sending(
        self, order_id: str, answer: Json, doubtful_since_s: float | None, *, keep_request: bool = True
    ) -> None:
        """Record the market's error for an open order, and since when its outcome is unknown (None: it is known).

        Without `keep_request` the next request is made again, because this one can never succeed.
        """
        new: dict[str, Any] = {"answer": as_stored(answer), "doubtful_since_s": doubtful_since_s}
        if not keep_request:
            new["request"] = None
        is_open = (intents.c.order_id == order_id) & (intents.c.state == IntentState.PLANNED.value)
        with self._database.write() as connection:
            connection.execute(update(intents).where(is_open).values(new))

    def note_answer(self, order_id: str, answer: Json) -> None:
        """Record an error of the market about an order: on the way to it, or the reason why its machines never ran."""
        with self._database.write() as connection:
            named = intents.c.order_id == order_id
            connection.execute(update(intents).where(named).values(answer=as_stored(answer)))

    def intents(self, job_id: str, states: Sequence[IntentState] = ()) -> list[Intent]:
        """Return the intents of a job, or those in one of `states`, oldest first."""
        query = select(intents).where(intents.c.job_id == job_id).order_by(intents.c.planned_at_s, intents.c.order_id)
        if states:
            query = query.where(intents.c.state.in_([state.value for state in states]))
        with self._database.read() as connection:
            return [_intent(row) for row in connection.execute(query)]

    def record_allocation(
        self,
        job_id: str,
        order_id: str,
        allocation: Allocation,
        instance_ids: Sequence[str],
        taken: tuple[str, int] | None = None,
    ) -> AllocationRecord:
        """Record the allocation that an order bought, or return the same recorded one.

        Parameters
        ----------
        taken : of machines that the job took over, the job that they were bought for, and since when they are its own.

        Raises
        ------
        IntentConflict
            If the order or the allocation's id belongs to another purchase.
        """
        row = market_columns(allocation) | {
            "job_id": job_id,
            "order_id": order_id,
            "instance_ids": list(instance_ids),
        }
        if taken is not None:
            row["bought_for"], row["held_from_s"] = taken
        with self._database.write() as connection:
            require_row(connection, select(jobs.c.job_id).where(jobs.c.job_id == job_id), "job", job_id)
            new_row = row | {"instance_ends": {}}
            connection.execute(insert_or(connection, allocations).values(new_row).on_conflict_do_nothing())
            query = select(allocations).where(allocations.c.allocation_id == allocation.allocation_id)
            stored = connection.execute(query).one_or_none()
            if stored is None or not has_columns(stored, row):
                raise IntentConflict(
                    f"allocation {allocation.allocation_id}: the id or its order {order_id} belongs to another purchase"
                )
        return allocation_record(stored)

    def end_allocation(self, allocation_id: str, ended_at_s: int, cause: EndCause) -> AllocationRecord:
        """Record the end of an allocation as the market reports it; the same end again changes nothing.

        Raises
        ------
        IllegalTransition
            If another end is recorded, or the end is before the launch.
        """
        query = select(allocations).where(allocations.c.allocation_id == allocation_id).with_for_update()
        with self._database.write() as connection:
            record = allocation_record(require_row(connection, query, "allocation", allocation_id))
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
            return allocation_record(require_row(connection, query, "allocation", allocation_id))

    def record_instance(self, allocation_id: str, instance_id: str) -> AllocationRecord:
        """Record that an instance of an allocation lives, whatever was recorded of it.

        An instance that was not known joins the allocation. The end of an allocation that has ended stays that of its
        other instances. Lines of the ledger are not touched: the next booking corrects what they lack.
        """
        query = select(allocations).where(allocations.c.allocation_id == allocation_id).with_for_update()
        with self._database.write() as connection:
            record = allocation_record(require_row(connection, query, "allocation", allocation_id))
            if record.alive and instance_id in record.living_ids:
                return record
            ends = {name: end for name, end in record.ends.items() if name != instance_id}
            new = {"ended_at_s": None, "end_cause": None, **_instance_columns(record, [instance_id], ends)}
            connection.execute(update(allocations).where(allocations.c.allocation_id == allocation_id).values(new))
            return allocation_record(require_row(connection, query, "allocation", allocation_id))

    def record_instance_ends(self, allocation_id: str, ends: Mapping[str, tuple[int, EndCause]]) -> AllocationRecord:
        """Record the ends of single instances; a recorded end does not change unless the instance is seen alive.

        An instance that was not known joins the allocation. Once an allocation has ended, all that were known have.

        Parameters
        ----------
        ends : (ended_at_s, cause) by instance id.

        Raises
        ------
        IllegalTransition
            If an instance's end is before the launch.
        """
        query = select(allocations).where(allocations.c.allocation_id == allocation_id).with_for_update()
        with self._database.write() as connection:
            record = allocation_record(require_row(connection, query, "allocation", allocation_id))
            new = {name: end for name, end in ends.items() if name not in record.ends}
            if not new:
                return record
            for name, (ended_at_s, _) in new.items():
                if ended_at_s < record.allocation.launched_at_s:
                    raise IllegalTransition(
                        f"allocation {allocation_id}: {name} cannot end at {ended_at_s}, before its launch"
                    )
            values = _instance_columns(record, [*new], {**record.instance_ends, **new})
            connection.execute(update(allocations).where(allocations.c.allocation_id == allocation_id).values(values))
            return allocation_record(require_row(connection, query, "allocation", allocation_id))

    def allocations(
        self, job_id: str, *, alive: bool | None = None, after_s: float | None = None
    ) -> list[AllocationRecord]:
        """Return the allocations of a job (all, the held ones, the ended ones), oldest first.

        Parameters
        ----------
        after_s : those that ended before this time are left out.
        """
        query = select(allocations).where(allocations.c.job_id == job_id)
        query = query.order_by(allocations.c.launched_at_s, allocations.c.allocation_id)
        if alive is not None:
            query = query.where(allocations.c.ended_at_s.is_(None) if alive else allocations.c.ended_at_s.is_not(None))
        if after_s is not None:
            query = query.where(allocations.c.ended_at_s.is_(None) | (allocations.c.ended_at_s >= after_s))
        with self._database.read() as connection:
            return [allocation_record(row) for row in connection.execute(query)]

    def living_allocations(self) -> list[AllocationRecord]:
        """Return the allocations that are held by the book, of all jobs."""
        query = select(allocations).where(allocations.c.ended_at_s.is_(None)).order_by(allocations.c.allocation_id)
        with self._database.read() as connection:
            return [allocation_record(row) for row in connection.execute(query)]

    def living_instances(self) -> set[str]:
        """Return the instances that live by the book, of all jobs."""
        return {name for record in self.living_allocations() for name in record.living_ids}

    def handed_on(self, job_id: str) -> set[str]:
        """Return the instances that were bought for a job, and that another one has taken over."""
        others = (allocations.c.bought_for == job_id) & (allocations.c.job_id != job_id)
        query = select(allocations.c.instance_ids).where(others)
        with self._database.read() as connection:
            return {name for row in connection.execute(query) for name in row.instance_ids}

    def buyers(self, job_id: str) -> dict[str, str]:
        """Return the job that a machine was bought for, by instance, of those that a job took over."""
        query = select(allocations.c.instance_ids, allocations.c.bought_for)
        query = query.where(allocations.c.job_id == job_id, allocations.c.bought_for.is_not(None))
        with self._database.read() as connection:
            return {name: row.bought_for for row in connection.execute(query) for name in row.instance_ids}

    def add_lines(self, lines: Sequence[LedgerLine]) -> None:
        """Add lines to the ledger; an existing line is left unchanged."""
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
        with self._database.write() as connection:
            if rows:
                statement = insert_or(connection, ledger).on_conflict_do_nothing(index_elements=["entry_id"])
                connection.execute(statement, rows)

    def ledger(self, job_id: str, after_s: float | None = None) -> list[LedgerLine]:
        """Return the ledger of a job, in order of time, then of allocation, hour and kind.

        Parameters
        ----------
        after_s : the lines of allocations that ended before this time are left out.
        """
        query = select(ledger).where(ledger.c.job_id == job_id)
        if after_s is not None:
            recent = select(allocations.c.allocation_id).where(allocations.c.job_id == job_id)
            recent = recent.where(allocations.c.ended_at_s.is_(None) | (allocations.c.ended_at_s >= after_s))
            query = query.where(ledger.c.allocation_id.in_(recent))
        query = query.order_by(ledger.c.at_s, ledger.c.allocation_id, ledger.c.hour_index, ledger.c.kind)
        with self._database.read() as connection:
            return [_line(row) for row in connection.execute(query)]

    def spent(self, job_id: str) -> Micros:
        """Return the money spent on a job: the sum of its ledger."""
        query = select(func.coalesce(func.sum(ledger.c.amount_micros), 0)).where(ledger.c.job_id == job_id)
        with self._database.read() as connection:
            return int(connection.execute(query).scalar_one())


def _intent(row: Row[Any]) -> Intent:
    values = columns(row)
    return Intent(**(values | {"state": IntentState(values["state"])}))


def _instance_columns(
    record: AllocationRecord, observed: Sequence[str], ends: Mapping[str, tuple[int, EndCause]]
) -> dict[str, Any]:
    """Return the columns of an allocation whose instances end so; those that were `observed` are among them."""
    names = list(dict.fromkeys([*record.instance_ids, *observed]))
    return {
        "instance_ids": names,
        "count": max(record.allocation.count, len(names)),
        "instance_ends": {name: [at_s, cause.value] for name, (at_s, cause) in ends.items()},
    }


def allocation_record(row: Row[Any]) -> AllocationRecord:
    """Return an allocation of its row."""
    values = columns(row)
    cause = values["end_cause"]
    return AllocationRecord(
        job_id=values["job_id"],
        allocation=allocation_from_columns(values),
        instance_ids=tuple(values["instance_ids"]),
        order_id=values["order_id"],
        ended_at_s=values["ended_at_s"],
        end_cause=None if cause is None else EndCause(cause),
        instance_ends={name: (at_s, EndCause(why)) for name, (at_s, why) in values["instance_ends"].items()},
        bought_for=values["bought_for"],
        held_from_s=values["held_from_s"],
    )


def _line(row: Row[Any]) -> LedgerLine:
    values = columns(row)
    entry_id = values.pop("entry_id")
    line = LedgerLine(**(values | {"kind": LedgerKind(values["kind"])}))
    number = entry_id.removeprefix(f"{line.entry_id}/")
    return line if number == entry_id else replace(line, correction=int(number))
