"""What happens to the machines of the market, in order of time: changes that are due, calls, and faults of machines."""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum, StrEnum

from proteus_spot.bidding.market.failures import is_failed_launch
from proteus_spot.bidding.market.model import EndCause, InstanceState, Market
from proteus_spot.infra.simulated_ec2.faults import OF_SPOT, Fault, FaultKind
from proteus_spot.infra.simulated_ec2.held_instances import Boot, HeldInstance
from proteus_spot.infra.simulated_ec2.rules.capacity import MarketCapacity, foretold_s, taken


class NoticeMode(StrEnum):
    """Whether an eviction is announced."""

    LEAD = "lead"
    NONE = "none"


class ChangeKind(StrEnum):
    """What happened to an instance."""

    LAUNCHED = "launched"
    RUNNING = "running"  # its first boot: user-data runs
    MARKED = "marked"
    REBOOTED = "rebooted"  # on again, or started after a stop: user-data does not run again
    STOPPED = "stopped"
    EVICTED = "evicted"
    TERMINATED = "terminated"


@dataclass(frozen=True, slots=True)
class MarketChange:
    """A change of an instance at market time `at_s`."""

    at_s: int
    kind: ChangeKind
    instance_id: str


class _Due(IntEnum):
    """A kind of due change; changes of one second happen in this order."""

    DROP = 0  # a market is about to have fewer machines
    RUN = 1
    MARK = 2
    EVICT = 3
    SPARE = 4  # a mark is withdrawn
    DIE = 5
    FAULT = 6
    FORETELL = 7  # a market will soon have fewer machines


@dataclass(frozen=True, slots=True)
class _Drop:
    """A market has fewer machines from `at_s` on."""

    market: Market
    at_s: int


class MachineChanges:
    """The machines of a market, with the changes that have happened to them and those that are due.

    An ended machine never changes; nothing happens twice; changes come in time order, also when time jumps.

    Parameters
    ----------
    notice : whether an eviction is announced.
    notice_s : it is announced so long before it, or at launch if that is later.
    boot_s : a machine is pending so long.
    capacity : how many spot machines each market has; where it has fewer than it sold, it takes the rest.
    """

    def __init__(self, notice: NoticeMode, notice_s: int, boot_s: int, capacity: MarketCapacity) -> None:
        self._notice = notice
        self._notice_s = notice_s
        self._boot_s = boot_s
        self._capacity = capacity
        self.now_s = 0
        #: By instance id, in order of launch.
        self.by_id: dict[str, HeldInstance] = {}
        self._due: list[tuple[int, _Due, int, str | Fault | _Drop]] = []
        #: The drops that are scheduled.
        self._drops: set[_Drop] = set()
        self._due_count = 0
        self._changes: list[MarketChange] = []

    def __iter__(self) -> Iterator[HeldInstance]:
        return iter(self.by_id.values())

    @property
    def next_due_s(self) -> int | None:
        """Time of the next change that is due; None if there is none."""
        return self._due[0][0] if self._due else None

    def take(self) -> list[MarketChange]:
        """Return the changes since the last call, in order."""
        changes, self._changes = self._changes, []
        return changes

    def plan_notice(self, evicts_at_s: int | None, from_s: int) -> int | None:
        """Return when an eviction is announced to a machine that is there from `from_s` on; None: it is not."""
        if evicts_at_s is None or self._notice is not NoticeMode.LEAD:
            return None
        return max(evicts_at_s - self._notice_s, from_s)

    def first_boot(self, launched_at_s: int) -> Boot:
        """Return the boot that a launch begins."""
        return Boot(launched_at_s, launched_at_s + self._boot_s)

    def launch(self, held: HeldInstance, died: Fault | None) -> None:
        """Note the launch of a machine, and schedule what will happen to it; `died` says that it never runs."""
        self._note(self.now_s, ChangeKind.LAUNCHED, held)
        if died is None:
            self.look_ahead(held)
        else:
            held.boot.runs_s = None
            held.end_reason = died.code or "Server.InsufficientInstanceCapacity"
            self._schedule(self.now_s + int(died.delay_s), _Due.DIE, held.instance_id)

    def schedule_fault(self, fault: Fault) -> None:
        """Have a fault of machines happen at its time; now where that is past or absent."""
        self._schedule(max(fault.at_s or 0, self.now_s), _Due.FAULT, fault)

    def look_ahead(self, held: HeldInstance) -> None:
        """Schedule the future changes of an instance."""
        if held.boot.runs_s is None:
            self._schedule(self.now_s, _Due.DIE, held.instance_id)
            return
        if held.boot.stopped_s is None:
            self._schedule(held.boot.runs_s, _Due.RUN, held.instance_id)
        if held.marks_at_s is not None:
            self._schedule(held.marks_at_s, _Due.MARK, held.instance_id)
        if held.evicts_at_s is not None:
            self._schedule(held.evicts_at_s, _Due.EVICT, held.instance_id)
        if held.is_spot:
            self._watch(held.request.market, self.now_s)

    def _watch(self, market: Market, after_s: int) -> None:
        """Schedule the next drop of a market's capacity, at the second in which its machines are chosen."""
        drop_s = self._capacity.next_drop_s(market, after_s)
        if drop_s is None or (drop := _Drop(market, drop_s)) in self._drops:
            return
        self._drops.add(drop)
        self._schedule(max(drop_s - self._lead_s, self.now_s), _Due.DROP, drop)
        ahead_s = foretold_s(market, drop_s) if self._notice is NoticeMode.LEAD else None
        if ahead_s is not None and (at_s := drop_s - self._lead_s - ahead_s) >= self.now_s:
            self._schedule(at_s, _Due.FORETELL, drop)

    @property
    def _lead_s(self) -> int:
        return self._notice_s if self._notice is NoticeMode.LEAD else 0

    def sold(self, market: Market) -> list[HeldInstance]:
        """Return the spot machines of a market that have not ended."""
        return [held for held in self if held.is_spot and held.ended_at_s is None and held.request.market == market]

    def _excess(self, drop: _Drop) -> tuple[dict[str, HeldInstance], int]:
        """Return the machines that would live at a drop, by id, and how many of them it takes; below 1: none."""
        sold = self.sold(drop.market)
        lives = {each.instance_id: each for each in sold if each.evicts_at_s is None or each.evicts_at_s > drop.at_s}
        return lives, len(lives) - (self._capacity.at(drop.market, drop.at_s) or 0)

    def _recommend_rebalance(self, market: Market, at_s: int) -> None:
        for held in self.sold(market):
            held.rebalance_at_s = at_s if held.rebalance_at_s is None else held.rebalance_at_s

    def _foretell(self, drop: _Drop, at_s: int) -> None:
        if self._excess(drop)[1] > 0:
            self._recommend_rebalance(drop.market, at_s)

    def _drop(self, drop: _Drop, at_s: int) -> None:
        """Choose the machines that a drop takes, and mark them; the market's others get a rebalance recommendation."""
        self._drops.remove(drop)
        lives, excess = self._excess(drop)
        for held in map(lives.__getitem__, taken(lives, excess, drop.at_s)):
            held.evicts_at_s = drop.at_s
            self._schedule(drop.at_s, _Due.EVICT, held.instance_id)
            if self._notice is NoticeMode.LEAD:
                held.announced_s = drop.at_s
                if held.marked_at_s(at_s) is None:
                    held.marks_at_s = at_s
                    self._note(at_s, ChangeKind.MARKED, held)
        if excess > 0 and self._notice is NoticeMode.LEAD:
            self._recommend_rebalance(drop.market, at_s)
        if self.sold(drop.market):
            self._watch(drop.market, drop.at_s)

    def _schedule(self, at_s: int, due: _Due, subject: str | Fault | _Drop) -> None:
        self._due_count += 1
        heapq.heappush(self._due, (at_s, due, self._due_count, subject))

    def advance(self, now_s: int) -> None:
        """Apply every change that is due by `now_s`, in order. Time never goes backwards."""
        self.now_s = max(now_s, self.now_s)
        while self._due and self._due[0][0] <= self.now_s:
            at_s, due, _, subject = heapq.heappop(self._due)
            if isinstance(subject, Fault):
                self._strike(subject, at_s)
                continue
            if isinstance(subject, _Drop):
                (self._foretell if due is _Due.FORETELL else self._drop)(subject, at_s)
                continue
            held = self.by_id[subject]
            if held.ended_at_s is None:
                self._change(held, due, at_s)

    def _change(self, held: HeldInstance, due: _Due, at_s: int) -> None:
        """Carry out a due change of a living instance, if it is still due."""
        if due is _Due.RUN and held.boot.runs_s == at_s and held.boot.stopped_s is None:
            kind = ChangeKind.RUNNING if len(held.boots) == 1 else ChangeKind.REBOOTED
            self._note(at_s, kind, held)
        elif due is _Due.MARK and held.marks_at_s == at_s:
            self._note(at_s, ChangeKind.MARKED, held)
        elif due is _Due.EVICT and held.evicts_at_s == at_s:
            self.end(held, at_s, EndCause.EVICTED, "Server.SpotInstanceTermination")
        elif due is _Due.SPARE and held.announced_s == at_s != held.evicts_at_s:
            held.marks_at_s = held.announced_s = None
            if (marks_at_s := self.plan_notice(held.evicts_at_s, at_s)) is not None:
                held.announced_s, held.marks_at_s = held.evicts_at_s, marks_at_s
        elif due is _Due.DIE:
            cause = EndCause.FAILED if is_failed_launch(held.end_reason) else EndCause.USER
            self.end(held, at_s, cause, held.end_reason)

    def _strike(self, fault: Fault, at_s: int) -> None:
        """Have what a fault says happen to its machines."""
        for held in self:
            named = held.instance_id == fault.instance_id or (
                fault.instance_id is None and held.request.market == fault.market
            )
            if not named or held.ended_at_s is not None or (fault.kind in OF_SPOT and not held.is_spot):
                continue
            match fault.kind:
                case FaultKind.KILL:
                    self.end(held, at_s, EndCause.EVICTED, "Server.SpotInstanceTermination")
                case FaultKind.FAIL:
                    self.end(held, at_s, EndCause.USER, fault.code or "Server.InternalError")
                case FaultKind.MARK:
                    self._mark(held, fault, at_s)
                case FaultKind.REBALANCE:
                    held.rebalance_at_s = at_s
                case FaultKind.REBOOT:
                    self.reboot(held, at_s)
                case FaultKind.STOP if not held.is_spot:
                    self.stop(held, at_s)
                case FaultKind.START:
                    self.start(held, at_s)

    def _note(self, at_s: int, kind: ChangeKind, held: HeldInstance) -> None:
        self._changes.append(MarketChange(at_s, kind, held.instance_id))

    def reboot(self, held: HeldInstance, at_s: int) -> None:
        """Reboot a machine that runs."""
        if held.state(at_s) is InstanceState.RUNNING:
            self._note(at_s, ChangeKind.REBOOTED, held)

    def stop(self, held: HeldInstance, at_s: int) -> None:
        """Stop a machine that is on."""
        if held.state(at_s) in (InstanceState.PENDING, InstanceState.RUNNING):
            held.boot.stopped_s = at_s
            self._note(at_s, ChangeKind.STOPPED, held)

    def start(self, held: HeldInstance, at_s: int) -> None:
        """Start a machine that is stopped; it boots again."""
        if held.state(at_s) is InstanceState.STOPPED:
            held.boots.append(Boot(at_s, at_s + self._boot_s))
            self._schedule(at_s + self._boot_s, _Due.RUN, held.instance_id)

    def _mark(self, held: HeldInstance, fault: Fault, at_s: int) -> None:
        """Give an instance its notice now; it is taken when that has run out, or earlier if that is due anyway."""
        takes_s = at_s + (self._notice_s if fault.notice_s is None else fault.notice_s)
        is_first = held.marked_at_s(at_s) is None
        if is_first:
            held.marks_at_s = at_s
            self._note(at_s, ChangeKind.MARKED, held)
        held.announced_s = takes_s
        if held.evicts_at_s is not None and held.evicts_at_s <= takes_s:
            held.announced_s = held.evicts_at_s
        elif fault.spares:
            self._schedule(takes_s, _Due.SPARE, held.instance_id)
        else:
            held.evicts_at_s = takes_s
            self._schedule(takes_s, _Due.EVICT, held.instance_id)

    def end(self, held: HeldInstance, at_s: int, cause: EndCause, reason: str) -> None:
        """End a machine."""
        held.ended_at_s, held.end_cause, held.end_reason = at_s, cause, reason
        kind = ChangeKind.EVICTED if cause is EndCause.EVICTED else ChangeKind.TERMINATED
        self._note(at_s, kind, held)
