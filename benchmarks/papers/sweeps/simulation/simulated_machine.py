"""One trial on one machine: what it has trained, saved and reported at any moment, in closed form."""

from dataclasses import dataclass, field
from math import ceil, floor, inf

from proteus_spot.bidding.market.model import MINUTE_S, Allocation, EndCause

#: Added to a number of steps before it is rounded down, since a step that ends now may end at 0.999999 by floats.
_ROUNDING = 1e-5
#: Decimals of a second.
_PLACES = 6


@dataclass(frozen=True, slots=True)
class MachineTimes:
    """How machines behave.

    Attributes
    ----------
    boot_s : float
        Seconds from the grant to the process of the trial, without the restore.
    notice_s : int
        Seconds between the notice of an eviction and the eviction; 0: there is none.
    checkpoint_s : float
        Seconds between the uploads of a state, unless the upload takes more than a tenth of that.
    """

    boot_s: float = 60.0
    notice_s: int = 2 * MINUTE_S
    checkpoint_s: float = 5.0 * MINUTE_S

    def __post_init__(self) -> None:
        if min(self.boot_s, self.notice_s) < 0 or self.checkpoint_s <= 0:
            raise ValueError("seconds cannot be negative, and the period of checkpoints must be above 0")


#: Uploads may take this share of the time.
_UPLOAD_SHARE = 0.1


@dataclass(slots=True)
class SimulatedMachine:
    """A granted deployment, from its launch to its end.

    The state after each step stays on the machine; it is uploaded periodically in the background, and at a notice, a
    pause and the last step. At a notice the state as it is then is uploaded, if it is there before the machine is
    taken; a pause lets the step in progress end.

    Attributes
    ----------
    trial : number of the trial.
    from_step, until_step : the step of the restored state, and the one after which the trial pauses.
    step_s, restore_s, upload_s : seconds of a step on this machine, of the restore (0 without a state), of an upload.
    takes_s : time at which the market takes the machine; None: never.
    paused_s, released_s : when it was ordered to pause, and ended by an order; None while it was not.
    """

    allocation: Allocation
    trial: int
    from_step: int
    until_step: int
    step_s: float
    restore_s: float
    upload_s: float
    takes_s: int | None
    times: MachineTimes
    paused_s: int | None = None
    released_s: int | None = None
    #: What was reported of it: the newest step, the newest saved step, anything at all, its notice, its end.
    reported_step: int = 0
    reported_saved: int | None = None
    has_reported: bool = False
    is_noticed: bool = False
    is_ended: bool = False
    #: When its first step begins.
    starts_s: float = field(init=False)
    #: When the notice of its eviction is given; infinite if there is none.
    notice_s: float = field(init=False)
    #: When its process ends with an uploaded state, if the machine lives that long: the end of the upload that follows
    #: the last step, a pause, or a notice, whichever comes first.
    done_s: float = field(init=False)
    #: When and why the machine ends, as far as that is known; None: it is not.
    end: tuple[int, EndCause] | None = field(init=False)
    #: The last step that it trains, and when, unless a notice comes first.
    _last_step: int = field(init=False)
    _stops_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.reported_step = self.from_step
        self.starts_s = self.allocation.launched_at_s + self.times.boot_s + self.restore_s
        self.notice_s = inf
        if self.takes_s is not None and self.times.notice_s:
            self.notice_s = max(self.takes_s - self.times.notice_s, self.allocation.launched_at_s)
        self._last_step = self.until_step
        self._stops_s = self.time_of_step(self.until_step)
        self._update()

    def pause(self, at_s: int) -> None:
        """Stop training after the step in progress; a second order changes nothing."""
        if self.paused_s is None:
            self.paused_s = at_s
            progress = (at_s - self.starts_s) / self.step_s
            self._last_step = min(self.until_step, self.from_step + max(ceil(progress - _ROUNDING), 0))
            self._stops_s = max(self.time_of_step(self._last_step), at_s)
            self._update()

    def release(self, at_s: int) -> None:
        """End the machine now."""
        if self.released_s is None:
            self.released_s = at_s
            self._update()

    def step_at(self, at_s: float) -> int:
        """Return the newest step that is done at a time."""
        until_s = min(at_s, self.notice_s, inf if self.end is None else self.end[0])
        if until_s >= self._stops_s:  # at once, where steps take no time that is measurable
            return self._last_step
        steps = floor((until_s - self.starts_s) / self.step_s + _ROUNDING) if until_s > self.starts_s else 0
        return min(self.from_step + steps, self._last_step)

    def saved_at(self, at_s: float) -> int | None:
        """Return the step of the newest state that this machine has uploaded by a time; None: it has uploaded none."""
        ended_s = inf if self.end is None else self.end[0]
        if self.done_s <= min(at_s, ended_s):
            step = self.step_at(min(self.done_s, ended_s))
            return step if step > self.from_step else None
        period_s = max(self.times.checkpoint_s, self.upload_s / _UPLOAD_SHARE)
        uploads = floor((min(at_s, ended_s, self.notice_s) - self.upload_s - self.starts_s) / period_s)
        if uploads < 1:
            return None
        step = self.step_at(self.starts_s + uploads * period_s)
        return step if step > self.from_step else None

    def time_of_step(self, step: int) -> float:
        """Return when a step ends on this machine, if it gets there."""
        return round(self.starts_s + (step - self.from_step) * self.step_s, _PLACES)

    def has_reported_end(self, at_s: int) -> bool:
        """Return whether the process has ended by a time, and its last report was written."""
        end = self.end
        return self.done_s <= (at_s if end is None else min(at_s, end[0]))

    def next_change_s(self, after_s: int) -> float:
        """Return when something about it changes next that a sweep may react to; infinite: nothing does."""
        moments = [self.time_of_step(self._last_step), self.done_s, self.notice_s]
        if self.end is not None:
            moments.append(self.end[0])
        return min((moment for moment in moments if moment > after_s), default=inf)

    def _update(self) -> None:
        # After a notice the machine waits for its end, which may be free.
        is_interrupted = self.notice_s <= self._stops_s
        self.done_s = round(min(self.notice_s, self._stops_s) + self.upload_s, _PLACES)
        ends = [] if is_interrupted else [(ceil(self.done_s), EndCause.USER)]
        if self.released_s is not None:
            ends.append((self.released_s, EndCause.USER))
        first = min(ends, default=None)
        # An eviction in the second of another end goes first.
        if self.takes_s is not None and (first is None or self.takes_s <= first[0]):
            first = (self.takes_s, EndCause.EVICTED)
        self.end = first
