"""Booking the end of an hour: once, at its time, by a name that does not change."""

import pytest
from prefect.exceptions import ObjectNotFound

from proteus_spot.tasks.market import renewals
from proteus_spot.tasks.market.renewals import book_renewals, due_bookings
from tests.support.task_runtime import BEGIN_S, TaskRuntime, plain, spec


@pytest.fixture
def held(here: TaskRuntime) -> TaskRuntime:
    here.begin(spec())
    here.tick(spec())
    return here


def test_an_hours_end_is_due_its_lead_before_it(held: TaskRuntime) -> None:
    due_s = BEGIN_S + 3600 - held.runtime.settings.renewal_lead_s
    (booking,) = due_bookings("job", due_s - 1)
    assert (booking.hour_end.hour, booking.at_s) == (0, due_s)
    assert due_bookings("job", due_s) == [], "the tick at hand decides it"
    assert due_bookings("job", due_s + 3599)[0].hour_end.hour == 1


def test_prefect_is_called_twice_for_an_hour_of_ticks(held: TaskRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    booked: list[str] = []
    monkeypatch.setattr(renewals, "run_deployment", lambda _, **options: booked.append(options["idempotency_key"]))
    for at_s in range(BEGIN_S, BEGIN_S + 2 * 3600, held.runtime.settings.tick_s):
        held.clock.at_s = at_s
        plain(book_renewals)("job")
    assert booked == ["renew-job-buy-0-h0"] * 2 + ["renew-job-buy-0-h1"] * 2


def test_on_demand_machines_are_not_booked(here: TaskRuntime) -> None:
    here.begin(spec())
    assert due_bookings("job", here.clock.now_s()) == []


def test_the_same_hour_is_booked_under_the_same_key_at_the_same_time(
    held: TaskRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    booked = []
    monkeypatch.setattr(renewals, "run_deployment", lambda name, **options: booked.append((name, options)))
    held.clock.at_s = BEGIN_S + 3600 - held.runtime.settings.renewal_lead_s - 200
    first = plain(book_renewals)("job")
    held.clock.at_s += 120
    assert plain(book_renewals)("job") == first == ["renew-job-buy-0-h0"]
    keys = {options["idempotency_key"] for _, options in booked}
    assert keys == {"renew-job-buy-0-h0"}
    lead = booked[1][1]["scheduled_time"] - booked[0][1]["scheduled_time"]
    assert lead.total_seconds() == pytest.approx(-120, abs=1), "the market's clock was moved by 120 s, the real one not"
    assert booked[0][1]["parameters"]["hour_end"]["allocation_id"] == "job-buy-0"


def test_without_the_deployment_the_ticks_decide(held: TaskRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> None:
        raise ObjectNotFound(http_exc=Exception("404"))

    monkeypatch.setattr(renewals, "run_deployment", missing)
    held.clock.at_s = BEGIN_S + 3600 - held.runtime.settings.renewal_lead_s - 1
    assert due_bookings("job", held.clock.now_s())
    assert plain(book_renewals)("job") == []


def test_where_market_time_is_scaled_nothing_is_booked(held: TaskRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renewals, "run_deployment", lambda *_, **__: pytest.fail("Prefect would start it by wall time"))
    held.clock.at_s = BEGIN_S + 3600 - held.runtime.settings.renewal_lead_s - 1
    monkeypatch.setattr(held.clock, "scale", 60.0)
    assert plain(book_renewals)("job") == []
