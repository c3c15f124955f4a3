"""The parts of a local environment; its start and end: tests/flows/local_market/test_training_run.py."""

import json
import os
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import httpx
import pytest

from proteus_spot.bidding.market.money import to_micros
from proteus_spot.bidding.market.traces import TraceSet
from proteus_spot.infra.clock import ScaledClock
from proteus_spot.infra.errors import InputError, ProteusError
from proteus_spot.infra.local_market.environment import LocalEnvironment, own_directory
from proteus_spot.infra.local_market.prefect_server import LocalPrefect
from proteus_spot.infra.market_data.price_files import write_prices
from tests.support.cli_process import processes_of, wait_gone
from tests.support.market_servers import T0, TRACES, A, client, credentials, request, wait_for


class NoPrefect:
    """A stub of the Prefect server, which takes seconds to start."""

    env = MappingProxyType({"PREFECT_API_URL": "http://127.0.0.1:1/api"})
    api_url = "http://127.0.0.1:1/api"

    def __init__(self, fails: bool = False) -> None:
        self.fails = fails
        self.calls: list[str] = []

    def start(self) -> None:
        self.calls.append("start")

    def wait_ready(self) -> None:
        self.calls.append("wait")
        if self.fails:
            raise ProteusError("it did not answer")

    def mark_unfinished_crashed(self) -> None:
        self.calls.append("bury")

    def stop(self) -> None:
        self.calls.append("stop")


def _environment(directory: Path, prefect: NoPrefect, endpoint_url: str | None = None) -> LocalEnvironment:
    directory.mkdir(exist_ok=True)
    write_prices(directory / "prices.csv", TRACES)
    environment = LocalEnvironment(directory / "run", directory / "prices.csv", None, T0 + 100, 60.0, 120, endpoint_url)
    environment.prefect = prefect  # type: ignore[assignment]
    return environment


def _environment_at(directory: Path, start_s: float) -> LocalEnvironment:
    environment = LocalEnvironment(directory / "run", directory / "prices.csv", None, start_s, 60.0, 120)
    environment.prefect = NoPrefect()  # type: ignore[assignment]
    return environment


def test_an_environment_has_a_market_on_its_clock_and_keeps_the_markets_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    credentials(monkeypatch)
    with _environment(tmp_path, NoPrefect()) as environment:
        env = environment.environment
        assert ScaledClock(env["PROTEUS_CLOCK"]).scale == 60.0
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", env["PROTEUS_EC2_KEY_ID"])
        market = client(env["PROTEUS_EC2_ENDPOINT_URL"])
        facts = market.launch(request("token", A, 2, "0.03"))
        assert T0 + 100 <= facts[0].launched_at_s < T0 + 1000
        market.terminate([facts[0].instance_id])
        assert env["PREFECT_API_URL"] == NoPrefect.api_url
    log = json.loads((tmp_path / "run" / "market-log.json").read_text())
    assert [one["token"] for one in log] == ["token", "token"]
    assert [one["end_cause"] for one in log] == ["user", None]
    assert log[0]["bid_micros"] == to_micros("0.03")
    with pytest.raises(httpx.HTTPError):
        httpx.get(f"{env['PROTEUS_EC2_ENDPOINT_URL']}/_market/log", timeout=1.0)
    wait_gone(tmp_path)


def test_an_environment_that_was_ended_continues_with_its_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    credentials(monkeypatch)
    script = "#!/bin/bash\necho booted >> $HOME/boots\nexec sleep 1000\n"
    with _environment(tmp_path, NoPrefect()) as environment:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", environment.environment["PROTEUS_EC2_KEY_ID"])
        market = client(environment.environment["PROTEUS_EC2_ENDPOINT_URL"])
        (fact,) = market.launch(replace(request("token", A, 1, "0.03"), user_data=script))
        boots = tmp_path / "run" / "machines" / fact.instance_id / "boots"
        wait_for(boots.exists, "the machine to boot")
    wait_gone(tmp_path)
    stood_s = json.loads((tmp_path / "run" / "market.json").read_text())["now_s"]

    write_prices(tmp_path / "prices.csv", TraceSet({A: TRACES[A]}))
    with pytest.raises(
        ProteusError, match=r"prices\.csv: is not the file that .*market\.json continues from; name that"
    ):
        _environment_at(tmp_path, stood_s).__enter__()
    write_prices(tmp_path / "prices.csv", TRACES)
    with _environment_at(tmp_path, stood_s) as environment:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", environment.environment["PROTEUS_EC2_KEY_ID"])
        market = client(environment.environment["PROTEUS_EC2_ENDPOINT_URL"])
        (again,) = market.describe([])
        assert (again.instance_id, again.launched_at_s, again.alive) == (fact.instance_id, fact.launched_at_s, True)
        assert market.launch(replace(request("token", A, 1, "0.03"), user_data=script)) == [again], "the token holds"
        wait_for(lambda: boots.read_text() == "booted\nbooted\n", "the machine to boot again")
        market.terminate([fact.instance_id])
    log = json.loads((tmp_path / "run" / "market-log.json").read_text())
    assert [(one["instance_id"], one["end_cause"]) for one in log] == [(fact.instance_id, "user")]
    wait_gone(tmp_path)


def test_what_was_started_is_ended_when_the_rest_fails(tmp_path: Path) -> None:
    prefect = NoPrefect(fails=True)
    with pytest.raises(ProteusError, match="did not answer"), _environment(tmp_path, prefect):
        raise AssertionError("it must not open")
    assert prefect.calls == ["start", "wait", "stop"]
    wait_gone(tmp_path)


def test_prefect_is_ended_also_when_the_endpoint_makes_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prefect = NoPrefect()
    environment = _environment(tmp_path, prefect, "http://127.0.0.1:9")
    environment.open()

    class Trouble:
        def stop(self) -> None:
            raise OSError

    environment._endpoint = Trouble()  # type: ignore[assignment]
    with pytest.raises(OSError):
        environment.close()
    assert prefect.calls[-1] == "stop"


def test_an_endpoint_that_cannot_start_is_told_with_its_words(tmp_path: Path) -> None:
    environment = _environment(tmp_path, NoPrefect())
    (tmp_path / "prices.csv").write_text("nothing\n")
    with pytest.raises(ProteusError, match=r"ended with 2: .*prices\.csv: the header"), environment:
        raise AssertionError("it must not open")


def test_an_endpoint_that_runs_already_is_used_and_left(tmp_path: Path) -> None:
    with _environment(tmp_path, NoPrefect(), "http://127.0.0.1:9") as environment:
        assert environment.environment["PROTEUS_EC2_ENDPOINT_URL"] == "http://127.0.0.1:9"
        assert processes_of(tmp_path) == []


# -- the directory --------------------------------------------------------------------------------------------------


def test_a_directory_belongs_to_one_run_at_a_time(tmp_path: Path) -> None:
    with own_directory(tmp_path / "a" / "b"):
        with (
            pytest.raises(InputError, match=r"--dir .*b: a run that is under way has it"),
            own_directory(tmp_path / "a/b"),
        ):
            raise AssertionError("it must not be given")
        assert (tmp_path / "a" / "b" / "run.lock").exists()
    with own_directory(tmp_path / "a" / "b"):
        pass


def test_a_directory_made_for_bad_input_is_taken_back(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="bad"), own_directory(tmp_path / "a" / "b"):
        raise InputError("bad")
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_was_there_stays(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("")
    with pytest.raises(InputError, match="bad"), own_directory(tmp_path):
        raise InputError("bad")
    assert os.listdir(tmp_path) == ["mine"]


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"--dir .*file/x: cannot be used"), own_directory(tmp_path / "file" / "x"):
        raise AssertionError("it must not be given")


def test_a_prefect_of_ones_own_listens_on_this_machine_only(tmp_path: Path) -> None:
    prefect = LocalPrefect(tmp_path / "home", tmp_path / "log")
    assert prefect.api_url.startswith("http://127.0.0.1:")
    assert prefect.env["PREFECT_HOME"] == str(tmp_path / "home")
    prefect.stop()
