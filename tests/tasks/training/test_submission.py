"""Jobs as a list shows them; a job's file; the server that it is submitted to."""

import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prefect.settings import PREFECT_API_KEY, PREFECT_API_URL, temporary_settings

from proteus_spot.bidding.billing import Flat, PerSecondFirstHourFree, Repricing
from proteus_spot.bidding.engine.events import TickDue
from proteus_spot.bidding.policies import POLICIES
from proteus_spot.infra.clock import ScaledClock
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.local_market.announcement import Announcement, announced
from proteus_spot.infra.local_market.environment import clock_file, own_directory
from proteus_spot.infra.local_market.job_stores import JobStore
from proteus_spot.infra.local_market.prefect_server import free_port
from proteus_spot.infra.state.records import JobState
from proteus_spot.infra.state.store import Store
from proteus_spot.studies.job_spec import JobSpec
from proteus_spot.tasks.job_records import job_spec
from proteus_spot.tasks.market.engine_journal import JobEngine
from proteus_spot.tasks.market.job_opening import job_model
from proteus_spot.tasks.reports.job_list import job_lines
from proteus_spot.tasks.training.submission import prefect_server, read_job
from tests.support.task_runtime import MARKET, TaskRuntime, spec

GOOD = """
job_id: mine
training: {app: mlr, data: digits, clocks: 10}
transient: {markets: [c4.large/us-east-1a]}
"""


def test_a_job_is_a_line(here: TaskRuntime) -> None:
    here.begin(spec())
    here.tick(spec())
    (line,) = job_lines(JobStore(here.store, None), [])
    assert (line.job_id, line.state, line.machines, line.evictions) == ("job", "starting", 3, 0)
    assert line.spent_micros == here.store.purchases.spent("job")


def test_a_job_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(GOOD)
    assert read_job(path).job_id == "mine"


def test_a_path_of_data_or_code_is_made_absolute_for_who_works_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "job.yaml"
    for source, told in (("in/mine.csv", str(tmp_path / "in/mine.csv")), ("s3://b/mine.csv", "s3://b/mine.csv")):
        path.write_text(GOOD.replace("digits", source))
        assert read_job(path).training.data == told
        path.write_text(GOOD.replace("app: mlr", f"app: mine:App, code: {source.replace('.csv', '.py')}"))
        assert read_job(path).training.code == told.replace(".csv", ".py")
    assert read_job(path).job_id == "mine"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (None, "there is no such file"),
        ("a: [", "is not YAML"),
        ("- a", "holds no job"),
        (GOOD.replace("mine", "Mine!"), "job_id"),
        (GOOD.replace("clocks: 10", "clocks: 0"), "training.clocks"),
        (GOOD.replace(", clocks: 10", ""), "training"),
        (GOOD + "colour: red\n", "colour: is not known; fix its name, or leave it out"),
        (GOOD.replace("clocks: 10", "hours: 1:30"), r"training\.hours: is 1:30, no number; write hours as 1\.5$"),
        (GOOD.replace("clocks: 10", "hours: 1:30:36"), r"training\.hours: .*write hours as 1\.51$"),
        (GOOD.replace("clocks: 10", "clocks: 1:30"), r"training\.clocks: is 1:30, no number; write a whole number$"),
        (GOOD.replace("clocks: 10", "hours: yes"), r"training\.hours: must be a number.*'yes'"),
        (GOOD.replace("clocks: 10", "hours: true"), r"training\.hours: is true, a truth value; write a number$"),
        (GOOD.replace("clocks: 10", "hours: .inf"), r"training\.hours: .*finite number"),
        (GOOD.replace("clocks: 10", "hours: .nan"), r"training\.hours: .*"),
        (GOOD.replace("clocks: 10", "clocks: 1e400"), r"training\.clocks: .*finite number"),
        (GOOD.replace("clocks: 10", f"clocks: {10**30}"), r"training\.clocks: must be at most"),
        (GOOD.replace("clocks: 10", "clocks: 10, clocks: 20"), r"line 3: clocks is given twice; keep one$"),
        (
            GOOD.replace("app: mlr", "app: svm"),
            r"training\.app 'svm': is not known; use one of bgd, kmeans, lda, mf, mlr, or",
        ),
        (GOOD.replace("digits", "mnist"), r"training\.data 'mnist': unknown; known are digits, and path or URL"),
        (GOOD.replace("digits", "topics"), r"training\.data 'topics': unknown; known are digits, and path or URL"),
        (GOOD.replace("clocks", "code: a.py, clocks"), r"training\.code a\.py: app mlr is built in and takes no code"),
        (GOOD.replace("app: mlr", "app: m:A, code: m.txt"), r"training\.code m\.txt: is no \.py file and no wheel"),
        (GOOD.replace("clocks", "app_params: {depth: 3}, clocks"), r"training\.app_params: app 'mlr' does not take"),
        (
            GOOD.replace("app: mlr", "app: m:A, app_params: {a: [.inf]}"),
            r"training\.app_params a: is \[inf\]; write finite",
        ),
        (
            GOOD.replace("us-east-1a]", "us-east-1a], policy: bset"),
            r"transient\.policy: unknown policy 'bset'; there are",
        ),
        (GOOD.replace("us-east-1a]", "us-east-1a], policy: 'fixed-delta:x'"), r"transient\.policy: .*not an amount"),
        (
            GOOD.replace("c4.large/us-east-1a", "c4.large"),
            r"transient\.markets\.0: not a market: 'c4\.large' \(want TYPE",
        ),
        (GOOD.replace("/us-east-1a", "/us east"), r"transient\.markets\.0: not a market: "),
        (GOOD + "reliable: {zone: 'a b'}\n", r"reliable: not a market: 'c4\.large/a b'"),
    ],
)
def test_a_bad_job_file_is_one_line_that_names_the_place(tmp_path: Path, text: str | None, place: str) -> None:
    path = tmp_path / "job.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError, match=place) as caught:
        read_job(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


_FULL = """job_id: mine
training: {app: mlr, app_params: {step: 0.5}, data: digits, partitions: 8, clocks: 10, hours: 2, seed: 1}
reliable: {count: 1, instance_type: c4.large, zone: us-east-1a}
transient:
  markets: [c4.large/us-east-1a, m4.large/us-east-1b]
  policy: fixed-delta:0.01
  billing: flat
  flat_price: 0.03
  ceiling_on_demand: true
"""
_BITS = (
    *"{}[]:,-?&*!|>'\"%@`# \n\t~",
    "<<",
    "---",
    "...",
    "!!int ",
    "&a ",
    "*a",
    ".inf",
    ".nan",
    "1e309",
    "1:30",
    "yes",
    "null",
)
_VALUES = (
    "",
    "~",
    "true",
    "-1",
    "0",
    "0x10",
    "1e400",
    "-0.0",
    ".nan",
    "9" * 5000,
    "[]",
    "{}",
    "[1]",
    "{a: 1}",
    "'1'",
    "\u0661",
    "1_0",
)


def _refusal(path: Path) -> str | None:
    try:
        read_job(path)
    except InputError as error:
        return str(error)
    return None


@settings(max_examples=300, deadline=None, database=None, derandomize=True)
@given(data=st.data())
def test_a_job_file_with_any_mistake_is_read_or_refused_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    text = _FULL
    for _ in range(data.draw(st.integers(1, 3))):
        if data.draw(st.booleans()):  # another value
            places = [found.span(1) for found in re.finditer(r": ([^\n,{}]+)", text)]
            if not places:
                continue
            start, end = data.draw(st.sampled_from(places))
            text = text[:start] + data.draw(st.sampled_from(_VALUES)) + text[end:]
        else:  # something put in, or left out
            start = data.draw(st.integers(0, len(text)))
            end = min(len(text), start + data.draw(st.integers(0, 6)))
            text = text[:start] + data.draw(st.sampled_from(_BITS)) + text[end:]
    path = tmp_path_factory.getbasetemp() / "fuzzed.yaml"
    path.write_text(text)
    refusal = _refusal(path)
    assert refusal is None or refusal.startswith(f"{path}: ")
    assert refusal is None or ("\n" not in refusal and len(refusal) < 1000)


def test_what_the_form_of_a_job_asks_is_checked_like_its_file() -> None:
    schema = JobSpec.model_json_schema()["$defs"]["TransientTier"]["properties"]
    markets = re.compile(schema["markets"]["items"]["pattern"])
    by_name, by_delta, by_the_rules = schema["policy"]["anyOf"]
    assert by_the_rules == {"type": "null"}
    assert markets.search("c4.large/us-east-1a")
    assert not any(map(markets.search, ("c4.large", "c4.large/", "/us-east-1a", "a b/c", "a/b/c")))
    assert set(by_name["enum"]) == set(POLICIES)
    assert re.search(by_delta["pattern"], "fixed-delta:0.01")
    assert not re.search(by_delta["pattern"], "fixed-delta:")


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        (
            "billing: free",
            r"transient\.billing: must be 'hourly-refund', 'per-second-first-hour-free' or 'flat'",
        ),
        (
            "billing: flat",
            r"transient\.flat_price: .*billing flat: needs a price; give flat_price USD, per instance-hour",
        ),
        ("billing: flat, flat_price: dear", r"transient\.flat_price: .*flat_price dear: is not a number"),
        (
            "flat_price: 0.03",
            r"flat_price 0\.03: is for billing flat, not for per-second-first-hour-free; leave it out",
        ),
        ("billing: flat, flat_price: 1, reprice: hour", r"reprice hour: is for billing per-second-first-hour-free"),
    ],
)
def test_a_billing_model_that_is_none_is_refused_in_one_line(tmp_path: Path, fields: str, complaint: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(GOOD.replace("us-east-1a]", f"us-east-1a], {fields}"))
    with pytest.raises(InputError, match=complaint) as caught:
        read_job(path)
    assert "\n" not in str(caught.value)


def test_a_job_file_says_how_machines_are_charged_and_its_rules_go_by_it(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(GOOD.replace("us-east-1a]", "us-east-1a], billing: flat, flat_price: 0.0301"))
    asked = read_job(path)
    assert asked.transient.billing_model == Flat(30_100)
    assert job_model(asked, 240).hour_micros(99) == 30_100
    path.write_text(GOOD.replace("us-east-1a]", "us-east-1a], billing: per-second-first-hour-free, reprice: change"))
    asked = read_job(path)
    assert asked.transient.billing_model == PerSecondFirstHourFree(Repricing.CHANGE)
    assert job_model(asked, 240).billing == "per-second-first-hour-free"


# -- what a job is submitted to -------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["data", "code"])
@pytest.mark.parametrize(
    "url",
    [
        "https://b.s3.amazonaws.com/x?X-Amz-Algorithm=A&X-Amz-Signature=00",
        "https://account.blob.example/x?sv=1&sig=00",
        "https://ann:secret@host.example/x",
    ],
)
def test_a_url_with_a_credential_is_refused_and_not_repeated(tmp_path: Path, field: str, url: str) -> None:
    path = tmp_path / "job.yaml"
    app = "" if field == "data" else "app: mine:App, "
    path.write_text(GOOD.replace("app: mlr, data: digits", f'{app}{field}: "{url}"'))
    with pytest.raises(InputError) as refused:
        read_job(path)
    assert str(refused.value).startswith(f"{path}: training.{field}: is a URL with a credential in it, and ")
    assert url not in str(refused.value)


def test_a_job_that_was_recorded_with_such_a_url_goes_on(here: TaskRuntime) -> None:
    url = "https://b.s3.amazonaws.com/x?X-Amz-Signature=00"
    record = spec().model_dump(mode="json")
    here.store.jobs.create_job("job", record | {"training": record["training"] | {"data": url}}, here.clock.at_s)
    assert job_spec("job").training.data == url


@pytest.fixture
def no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory without a server, in a process that is told of none."""
    monkeypatch.chdir(tmp_path)
    with temporary_settings(restore_defaults={PREFECT_API_URL}):
        yield tmp_path


def test_without_a_server_none_is_started(no_server: Path) -> None:
    with pytest.raises(InputError, match="PREFECT_API_URL: is not set; name the server, "), prefect_server(None):
        pass
    with pytest.raises(InputError, match="no `proteus up` runs there"), prefect_server(no_server):
        pass
    url = f"http://127.0.0.1:{free_port()}/api"
    nobody = pytest.raises(InputError, match=f"PREFECT_API_URL: no server answers at {url} ")
    with temporary_settings({PREFECT_API_URL: url}), nobody, prefect_server(None):
        pass


@pytest.fixture
def up(no_server: Path) -> Iterator[Announcement]:
    """A `proteus up` in runs/up, of which only the directory and something that answers are there."""
    directory = no_server / "runs" / "up"
    with socket.create_server(("127.0.0.1", 0)) as listener, own_directory(directory):
        thread = threading.Thread(target=_answer, args=(listener,), daemon=True)
        thread.start()
        port = listener.getsockname()[1]
        ScaledClock.create(clock_file(directory), 1000.0, 1e-6)
        found = Announcement(f"http://127.0.0.1:{port}/api", f"http://127.0.0.1:{port}", str(directory), 60, 0, 0, 2000)
        with announced(directory, found):
            yield found


def _answer(listener: socket.socket) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            connection.recv(4096)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


def test_a_running_up_is_found_and_its_own_credentials_are_used(up: Announcement) -> None:
    with temporary_settings({PREFECT_API_KEY: "of another server"}), prefect_server(None) as server:
        assert server.api_url == PREFECT_API_URL.value() == up.api_url
        assert PREFECT_API_KEY.value() is None
        assert server.warnings() == []
        assert server.next_commands("job")[0] == "proteus jobs"
    mine = temporary_settings({PREFECT_API_URL: f"{up.api_url}/"})
    with mine, prefect_server(None) as server:
        assert server.up is None, "the server of the settings goes first"
    with prefect_server(Path(up.directory)) as server:
        assert server.up == up


def test_prices_that_end_before_the_markets_now_are_said(up: Announcement) -> None:
    ScaledClock.create(clock_file(Path(up.directory)), 3000.0, 1e-6)
    with prefect_server(None) as server:
        (warning,) = server.warnings()
    assert warning.startswith(
        "the generated prices end at 1970-01-01 00:33, and the market's time is 1970-01-01 00:50: "
    )


def test_a_job_that_has_no_price_to_decide_on_says_so_in_the_list(here: TaskRuntime) -> None:
    here.begin(spec())
    tick = TickDue(int(here.clock.at_s), {}, left_out={MARKET: "the feed has stopped"})
    JobEngine("job").commit(lambda engine: [tick])
    (line,) = job_lines(JobStore(here.store, None), [])
    assert line.why == "nothing is bought: the feed has stopped"


def test_a_job_that_was_trained_to_its_end_is_known(up: Announcement) -> None:
    with Store.open(f"sqlite:///{up.directory}/state.db") as store:
        for job_id in ("over", "open"):
            store.jobs.create_job(job_id, {}, 1000.0)
        for state in (JobState.RUNNING, JobState.FINISHED):
            store.jobs.move_job("over", state, 1000.0)
    with prefect_server(None) as server:
        assert [server.is_finished(job_id) for job_id in ("over", "open", "new")] == [True, False, False]
