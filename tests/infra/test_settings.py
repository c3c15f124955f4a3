import math
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proteus_spot.infra.errors import InputError
from proteus_spot.infra.settings import Settings, load_settings


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    import os

    for name in list(os.environ):
        if name.startswith("PROTEUS_"):
            monkeypatch.delenv(name)
    load_settings.cache_clear()
    yield
    load_settings.cache_clear()


def test_the_defaults_work_on_one_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    settings = load_settings()
    assert settings.database_url == f"sqlite:///{tmp_path}/proteus/state.db"
    assert settings.blob_url == f"file://{tmp_path}/proteus/blobs"
    assert settings.clock == "system"
    settings.check_cadence(scale=1.0, flow_latency_s=20.0)


def test_the_environment_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROTEUS_TICK_S", "60")
    monkeypatch.setenv("PROTEUS_SUBNET_IDS", '{"us-east-1a": "subnet-1"}')
    monkeypatch.setenv("PROTEUS_OF_ANOTHER_VERSION", "1")
    settings = load_settings()
    assert (settings.tick_s, settings.subnet_ids) == (60, {"us-east-1a": "subnet-1"})
    monkeypatch.setenv("PROTEUS_TICK_S", "30")
    assert load_settings() is settings


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PROTEUS_TICK_S", "soon"),
        ("PROTEUS_TICK_S", "0"),
        ("PROTEUS_POLL_S", "-1"),
        ("PROTEUS_SUBNET_IDS", "[]"),
        ("PROTEUS_LEASE_MINUTES", "9"),
        ("PROTEUS_ALARM_WEBHOOK", "file:///etc/passwd"),
    ],
)
def test_a_bad_variable_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match=name) as caught:
        load_settings()
    assert "\n" not in str(caught.value)


def test_a_variable_that_is_no_json_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROTEUS_SUBNET_IDS", "subnet-1")
    with pytest.raises(InputError, match="PROTEUS_SUBNET_IDS") as caught:
        load_settings()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "scale", "name"),
    [
        ({"tick_s": 120}, 60.0, "PROTEUS_TICK_S"),
        ({"tick_s": 300, "renewal_lead_s": 240}, 50.0, "PROTEUS_RENEWAL_LEAD_S"),
        ({"poll_s": 61.0}, 1.0, "PROTEUS_POLL_S"),
        ({"tick_s": 241}, 1.0, "PROTEUS_RENEWAL_LEAD_S"),
        ({"tick_s": 121, "lease_minutes": 10}, 1.0, "PROTEUS_LEASE_MINUTES"),
    ],
)
def test_periods_that_cannot_be_kept_are_refused(changes: dict[str, float], scale: float, name: str) -> None:
    with pytest.raises(InputError, match=name):
        Settings(**changes).check_cadence(scale, flow_latency_s=5.0)


def test_the_scale_that_would_do_is_named_and_does() -> None:
    settings = Settings(tick_s=120)
    with pytest.raises(InputError, match="a scale of at most 24"):
        settings.check_cadence(60.0, 5.0)
    settings.check_cadence(24.0, 5.0)


def test_the_fastest_scale_keeps_both_periods() -> None:
    settings = Settings(tick_s=120, renewal_lead_s=90)
    assert settings.fastest_scale(2.0) == 45.0
    assert Settings(tick_s=120, renewal_lead_s=240).fastest_scale(2.0) == 60.0


_ODD = st.sampled_from(
    [
        "",
        " ",
        "nan",
        "inf",
        "-inf",
        "0",
        "-1",
        "1e309",
        "1e300",
        "1_0",
        "9" * 5000,
        "[",
        "[]",
        "{}",
        "null",
        "[1]",
        '{"a": 1}',
        "/",
    ]
) | st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=6)


def _refusal() -> str | None:
    try:
        found = load_settings()
        found.check_cadence(1.0, 1.0)
    except InputError as error:
        return str(error)
    assert all(math.isfinite(each) for each in (found.tick_s, found.poll_s, found.history_days))
    return None


@settings(max_examples=300, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(name=st.sampled_from(sorted(Settings.model_fields)), value=_ODD)
def test_any_value_is_taken_or_refused_in_one_line_that_names_the_variable(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    variable = f"PROTEUS_{name.upper()}"
    load_settings.cache_clear()
    with monkeypatch.context() as patch:
        patch.setenv(variable, value)
        refusal = _refusal()
    assert refusal is None or re.match("PROTEUS_[A-Z_0-9]+: ", refusal)
    assert refusal is None or ("\n" not in refusal and len(refusal) < 500)


@pytest.mark.parametrize("name", ["TICK_S", "NOTICE_S", "POLL_S", "RENEWAL_LEAD_S", "HISTORY_DAYS", "PRICES_MAX_AGE_S"])
@pytest.mark.parametrize("value", ["inf", "nan", "1e12"])
def test_a_duration_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"PROTEUS_{name}", value)
    with pytest.raises(InputError, match=rf"^PROTEUS_{name}: "):
        load_settings()
