"""Split of a price file into a window to fit on and one to evaluate on."""

from dataclasses import dataclass

import numpy as np

from proteus_spot.bidding.market.model import DAY_S, HOUR_S
from proteus_spot.bidding.market.time_window import TimeWindow
from proteus_spot.bidding.market.traces import Int64s, TraceSet
from proteus_spot.infra.errors import InputError
from proteus_spot.studies.times import day_of, minute, parse_moment

#: Default share of the time that is fitted to: two of three parts.
_FIT_PARTS, _PARTS = 2, 3
#: Seconds without an event in any market after which a note is written, and after which the file is refused: a market
#: that does not move was still reported once a day.
_SILENCE_S = 12 * HOUR_S
_MOST_SILENT_S = 48 * HOUR_S


@dataclass(frozen=True, slots=True)
class Split:
    """The window that is fitted to, the window that is evaluated, and notes on them."""

    fit: TimeWindow
    evaluation: TimeWindow
    notes: tuple[str, ...] = ()

    @property
    def overlap(self) -> bool:
        """Whether the two windows overlap."""
        return self.fit.overlaps(self.evaluation)


def choose_windows(
    traces: TraceSet,
    *,
    fit_from: str | None = None,
    fit_to: str | None = None,
    evaluate_from: str | None = None,
    evaluate_to: str | None = None,
    allow_overlap: bool = False,
    allow_gaps: bool = False,
) -> Split:
    """Return the two windows.

    Parameters
    ----------
    fit_from, fit_to, evaluate_from, evaluate_to : UTC days or times. A day that ends a window lies in it; only if the
        evaluation begins on the day that ends the fit does the fit end with the day before. None is filled in: the fit
        begins with the file, the evaluation ends with it, and the time between is cut at two thirds.
    allow_overlap, allow_gaps : accept what is otherwise refused, and note it.

    Raises
    ------
    InputError
        If a time is invalid, a window is empty or begins outside the file, the two overlap, or no market at all has a
        price event in more than two days of a window.
    """
    first_s, last_s = traces.first_s, traces.last_s
    given = {
        name: None if text is None else parse_moment(name, text)
        for name, text in (
            ("--fit-from", fit_from),
            ("--fit-to", fit_to),
            ("--from", evaluate_from),
            ("--to", evaluate_to),
        )
    }
    begin, end, start, stop = given.values()
    for moment in (begin, start):
        if moment is not None and not day_of(first_s) <= moment.at_s <= last_s:
            raise InputError(
                f"{moment}: begins outside the price file, which has {minute(first_s)} to {minute(last_s)}; give a "
                "time in it"
            )
    notes = []
    # No price of the file reaches beyond its last day; the last prices are held after that.
    most_s = day_of(last_s) + DAY_S
    if stop is not None and stop.end_s > most_s:
        notes.append(f"the prices end on {minute(last_s)[:10]}, before {stop}: the evaluation ends with that day")
    fit_from_s = first_s if begin is None else begin.at_s
    until_s = last_s if stop is None else min(stop.end_s, most_s)
    if start is not None:
        from_s = start.at_s
        same_day = end is not None and end.day and end.at_s == from_s
        fit_until_s = from_s if end is None or same_day else end.end_s
    elif end is not None:
        from_s = fit_until_s = end.end_s
    else:
        from_s = fit_until_s = _cut(fit_from_s, until_s)
        notes.append(f"fit on the first two thirds of the time, evaluated on the rest, from {minute(from_s)}")
    windows = Split(
        _window("fit", "--fit-from and --fit-to", fit_from_s, min(fit_until_s, most_s)),
        _window("evaluation", "--from and --to", from_s, until_s),
    )
    if windows.overlap:
        if not allow_overlap:
            raise InputError(
                f"the fit ({windows.fit}) has seen what is evaluated ({windows.evaluation}); part them by --fit-to and "
                "--from, or give --allow-overlap"
            )
        notes.append("the result is not honest: the fit has seen what is evaluated (--allow-overlap)")
    notes += _gaps(traces, windows, allow_gaps)
    return Split(windows.fit, windows.evaluation, tuple(notes))


def _window(name: str, options: str, from_s: int, until_s: int) -> TimeWindow:
    if until_s <= from_s:
        raise InputError(
            f"{options}: the {name} is empty ({minute(from_s)} to {minute(until_s)}); let it end after it begins"
        )
    return TimeWindow(from_s, until_s)


def _gaps(traces: TraceSet, windows: Split, allowed: bool) -> list[str]:
    """Return notes on the longest time of each window without an event in all markets, or in a single one."""
    events_s = np.unique(np.concatenate([trace.times_s for trace in traces.values()]))
    notes = []
    for name, window in (("fit", windows.fit), ("evaluation", windows.evaluation)):
        from_s, silent_s = _longest_silence(events_s, window, traces.last_s)
        gap = f"the {name} has a gap: no market has a price in the {silent_s / HOUR_S:.0f} h from {minute(from_s)}"
        if silent_s > _MOST_SILENT_S and not allowed:
            raise InputError(f"{gap}; choose a window without it, or give --allow-gaps")
        if silent_s > _SILENCE_S:
            notes.append(f"{gap}; the last ones are held")
            continue
        silences_s = [_longest_silence(trace.times_s, window, traces.last_s)[1] for trace in traces.values()]
        if gaps := sum(silence_s > _MOST_SILENT_S for silence_s in silences_s):
            longest = max(silences_s) / HOUR_S
            notes.append(
                f"in the {name}, {gaps} of {len(traces)} markets have no price for more than two days at a time (at "
                f"most {longest:.0f} h); the last one is held"
            )
    return notes


def _longest_silence(events_s: Int64s, window: TimeWindow, last_s: int) -> tuple[int, int]:
    """Return (beginning, seconds) of the longest time without an event in `window`, which ends no later than the file.

    Before the first event there is no price, so that nothing is held there.
    """
    begin_s = max(window.from_s, int(events_s[0]))
    within_s = events_s[(events_s > begin_s) & (events_s < window.until_s)]
    bounds_s = np.concatenate([[begin_s], within_s, [max(min(window.until_s, last_s), begin_s)]])
    longest = int(np.diff(bounds_s).argmax())
    return int(bounds_s[longest]), int(bounds_s[longest + 1] - bounds_s[longest])


def _cut(from_s: int, until_s: int) -> int:
    """Return where two thirds of the time have passed, at the nearest midnight, or hour if the time is short."""
    at_s = from_s + (until_s - from_s) * _FIT_PARTS // _PARTS
    unit_s = DAY_S if until_s - from_s >= 2 * _PARTS * DAY_S else HOUR_S
    return max((at_s + unit_s // 2) // unit_s * unit_s, from_s)
