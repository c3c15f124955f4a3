"""What is learnt from and what is evaluated on: days and times, defaults, and what is refused."""

import numpy as np
import pytest

from proteus_spot.bidding.market.model import DAY_S, HOUR_S, Market
from proteus_spot.bidding.market.time_window import TimeWindow
from proteus_spot.bidding.market.traces import Trace, TraceSet
from proteus_spot.infra.errors import InputError
from proteus_spot.studies.backtest.windows import choose_windows
from proteus_spot.studies.times import clock, iso, minute, moment_s

#: 2016-06-01T00:00:00Z
T0 = 1464739200
DAYS = 30
FIRST_S, LAST_S = T0 + 5 * HOUR_S, T0 + DAYS * DAY_S - 60


def traces(*holes: tuple[float, float]) -> TraceSet:
    """A price every six hours or less from 05:00 on the 1st until a minute before midnight of the 30th, but holes."""
    times = np.unique(np.append(np.arange(FIRST_S, LAST_S, 6 * HOUR_S), LAST_S))
    for from_day, until_day in holes:
        times = times[(times <= T0 + from_day * DAY_S) | (times >= T0 + until_day * DAY_S)]
    return TraceSet({Market("m4.large", "a"): Trace(times, np.full(len(times), 20_000))})


def day(number: float) -> int:
    """The second with which a day of June begins."""
    return T0 + int((number - 1) * DAY_S)


def test_a_day_that_ends_a_window_is_in_it() -> None:
    found = choose_windows(
        traces(), fit_from="2016-06-02", fit_to="2016-06-10", evaluate_from="2016-06-11", evaluate_to="2016-06-20"
    )
    assert found.fit == TimeWindow(day(2), day(11))
    assert found.evaluation == TimeWindow(day(11), day(21))
    assert not found.overlap
    assert found.notes == ()


def test_times_are_what_they_say() -> None:
    found = choose_windows(
        traces(),
        fit_from="2016-06-02T06:00",
        fit_to="2016-06-10T12:00Z",
        evaluate_from="2016-06-10 14:00:00+02:00",
        evaluate_to="2016-06-20T00:00",
    )
    assert found.fit == TimeWindow(day(2.25), day(10.5))
    assert found.evaluation == TimeWindow(day(10.5), day(20))


def test_where_the_evaluation_begins_on_the_fits_last_day_the_fit_ends_before_it() -> None:
    found = choose_windows(traces(), fit_to="2016-06-11", evaluate_from="2016-06-11")
    assert (found.fit.until_s, found.evaluation.from_s, found.overlap) == (day(11), day(11), False)


def test_nothing_said_is_cut_at_two_thirds_and_told() -> None:
    found = choose_windows(traces())
    assert found.fit == TimeWindow(FIRST_S, day(21))
    assert found.evaluation == TimeWindow(day(21), LAST_S)
    assert found.notes == ("fit on the first two thirds of the time, evaluated on the rest, from 2016-06-21 00:00",)


@pytest.mark.parametrize(
    ("given", "fit", "evaluation"),
    [
        ({"evaluate_from": "2016-06-10"}, (FIRST_S, day(10)), (day(10), LAST_S)),
        ({"fit_to": "2016-06-10"}, (FIRST_S, day(11)), (day(11), LAST_S)),
        ({"fit_from": "2016-06-13"}, (day(13), day(25)), (day(25), LAST_S)),
        ({"evaluate_to": "2016-06-15"}, (FIRST_S, day(11)), (day(11), day(16))),
    ],
)
def test_what_is_not_said_follows(given: dict[str, str], fit: tuple[int, int], evaluation: tuple[int, int]) -> None:
    found = choose_windows(traces(), **given)  # type: ignore[arg-type]
    assert (found.fit, found.evaluation) == (TimeWindow(*fit), TimeWindow(*evaluation))


def test_the_evaluation_ends_with_the_files_last_day() -> None:
    found = choose_windows(traces(), evaluate_from="2016-06-20", evaluate_to="2016-07-15")
    assert found.evaluation.until_s == day(31)
    assert found.notes == ("the prices end on 2016-06-30, before --to 2016-07-15: the evaluation ends with that day",)
    whole = choose_windows(traces(), evaluate_from="2016-06-20", evaluate_to="2016-06-30")
    assert whole.evaluation.until_s == day(31)
    assert whole.notes == ()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"evaluate_from": "2016-07-01"}, r"--from 2016-07-01: begins outside the price file, which has 2016-06-01 05"),
        ({"fit_from": "2016-05-31"}, r"--fit-from 2016-05-31: begins outside the price file"),
        ({"evaluate_from": "yesterday"}, r"--from yesterday: is not a UTC day or time; write 2016-05-01 or"),
        ({"fit_to": "2016-13-01"}, r"--fit-to 2016-13-01: is not a UTC day or time"),
        ({"evaluate_from": "2016-06-20", "evaluate_to": "2016-06-19"}, r"--from and --to: the evaluation is empty"),
        ({"fit_from": "2016-06-10", "evaluate_from": "2016-06-10"}, r"--fit-from and --fit-to: the fit is empty"),
        ({"fit_to": "2016-06-12", "evaluate_from": "2016-06-11"}, r"has seen what is evaluated .*--allow-overlap"),
        ({"fit_to": "2016-06-12", "fit_from": "2016-06-20"}, r"the fit is empty"),
    ],
)
def test_what_is_refused(given: dict[str, str], says: str) -> None:
    with pytest.raises(InputError, match=says) as refused:
        choose_windows(traces(), **given)  # type: ignore[arg-type]
    assert "\n" not in str(refused.value)


def test_an_overlap_that_is_asked_for_is_told() -> None:
    found = choose_windows(traces(), fit_to="2016-06-12", evaluate_from="2016-06-11", allow_overlap=True)
    assert found.overlap
    assert [note for note in found.notes if "not honest" in note]


def test_months_to_come_may_be_learnt_from_where_they_are_not_evaluated() -> None:
    found = choose_windows(
        traces(), fit_from="2016-06-20", fit_to="2016-06-25", evaluate_from="2016-06-05", evaluate_to="2016-06-15"
    )
    assert not found.overlap


def test_gaps() -> None:
    cut = {"evaluate_from": "2016-06-20"}
    assert choose_windows(traces((5.6, 5.8)), **cut).notes == ()  # type: ignore[arg-type]
    (note,) = choose_windows(traces((5, 6.6)), **cut).notes  # type: ignore[arg-type]
    assert note.startswith("the fit has a gap: no market has a price in the 42 h from 2016-06-05 23:00")
    with pytest.raises(InputError, match=r"the evaluation has a gap: .* 78 h from 2016-06-22 .*--allow-gaps"):
        choose_windows(traces((22, 25)), **cut)  # type: ignore[arg-type]
    (note,) = choose_windows(traces((22, 25)), allow_gaps=True, **cut).notes  # type: ignore[arg-type]
    assert note.endswith("the last ones are held")
    # a hole outside both windows is nobody's business
    found = choose_windows(traces((12, 18)), fit_to="2016-06-12", evaluate_from="2016-06-20")
    assert found.notes == ()


def test_how_times_are_written() -> None:
    at_s = moment_s("--explain", "2016-06-02T03:04:05Z")
    assert (minute(at_s), iso(at_s)) == ("2016-06-02 03:04", "2016-06-02T03:04:05Z")
    assert clock(at_s, day(1)) == "06-02 03:04:05 (+27:04:05)"


def test_a_market_that_is_silent_alone_is_told_not_refused() -> None:
    lively, still = traces(), traces((3, 27))
    both = TraceSet({**lively, Market("m4.large", "b"): still[Market("m4.large", "a")]})
    (fit, evaluation) = choose_windows(both, evaluate_from="2016-06-20").notes
    assert fit.startswith("in the fit, 1 of 2 markets have no price for more than two days at a time (at most ")
    assert evaluation.startswith("in the evaluation, 1 of 2 markets have no price for more than two days at a time")


def test_a_market_that_begins_late_has_no_gap_before() -> None:
    late = Trace(np.arange(day(10), LAST_S, 6 * HOUR_S), np.full(84, 1000))
    both = TraceSet({**traces(), Market("m4.large", "b"): late})
    assert choose_windows(both, evaluate_from="2016-06-20").notes == ()
