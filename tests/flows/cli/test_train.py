"""`proteus train` as a user runs it: it trains, runs a script of events, is broken off and goes on; nothing is left.

All of it with real processes. What every job must come to is one model, bit for bit, and one list of losses.
"""

import importlib
import json
import re
import shlex
import signal
import subprocess
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from proteus_spot.flows.cli.main import cli
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.storage.blobs import Blobs, npz_arrays
from proteus_spot.psengine.telemetry.timeline import replay
from tests.support import slow_apps as paced
from tests.support.cli_process import (
    ODD_NAME,
    PROTEUS,
    Outcome,
    Running,
    environment,
    inside,
    processes_of,
    proteus,
    running,
)
from tests.support.market_servers import wait_for
from tests.support.timeouts import PATIENCE

pytestmark = [pytest.mark.e2e]

CLOCKS, PARTITIONS = 120, 6
#: clocks between two evaluations, unless told otherwise
EVERY = CLOCKS // 10
#: of the model in all its shards: 2200 random features and a bias, ten classes
MODEL_BYTES = 2201 * 10 * 4
#: A clock lasts long enough to strike into it, on any machine, and a job is short enough to wait for.
APP = "slow_apps:SlowMlr"
SAME = (
    *("--clocks", str(CLOCKS), "--partitions", str(PARTITIONS), "--shards", "2", "--nodes", "r=1,t=2"),
    *("--code", str(Path(paced.__file__)), "--checkpoint-every", "0.3"),
    *("--param", "features=2200", "--param", "gamma=0.1"),
)
STEP = ("--param", "step=4.0")
FIGURES = {
    "job": str,
    "state": str,
    "clocks": int,
    "passes": float,
    "seconds": float,
    "kernel_seconds": float,
    "losses": list,
    "metrics": dict,
    "metrics_by_clock": list,
    "seconds_by_clock": list,
    "stage_by_clock": list,
    "stalls": list,
    "releases": list,
    "bytes_moved": dict,
    "bytes_not_read": int,
    "timeline": list,
    "memory_by_clock": list,
    "nodes": list,
    "went_back": list,
    "repeated_micro_tasks": int,
    "lost_micro_tasks": int,
    "micro_tasks_done": dict,
    "events": list,
    "model": str,
}


def weights(figures: dict[str, Any]) -> np.ndarray:
    """The model that the figures name, as the blob store has it."""
    folder, _, name = figures["model"].rpartition("/")
    return npz_arrays(Blobs(folder).read_bytes(name), name)["weights"]


def train(here: Path, job: str, *options: str) -> Outcome:
    return proteus("train", APP, "--job", job, *SAME, *STEP, *options, "--json", "-", cwd=here, home=here / "home")


def trained(here: Path, job: str, *options: str) -> dict[str, Any]:
    outcome = train(here, job, *options)
    assert outcome.code == 0, outcome
    figures: dict[str, Any] = json.loads(outcome.out)
    assert {name: type(value) for name, value in figures.items()} == FIGURES
    assert figures["state"] == "finished"
    assert figures["clocks"] == len(figures["losses"]) == len(figures["seconds_by_clock"]) == CLOCKS
    assert figures["lost_micro_tasks"] == 0
    assert [clock for clock, _ in figures["metrics_by_clock"]] == [*range(EVERY, CLOCKS, EVERY), CLOCKS]
    assert figures["metrics_by_clock"][-1][1] == figures["metrics"]
    assert sum(figures["micro_tasks_done"].values()) == CLOCKS * PARTITIONS
    assert processes_of(here) == []
    return figures


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    here = tmp_path_factory.mktemp("undisturbed") / ODD_NAME
    here.mkdir()
    return here, trained(here, "calm")


def test_it_trains_and_tells_its_figures_again(undisturbed: tuple[Path, dict[str, Any]]) -> None:
    here, figures = undisturbed
    assert figures["losses"][-1][1] < figures["losses"][0][1] / 2
    assert figures["metrics"]["accuracy"] > 0.9
    assert set(figures["stage_by_clock"]) <= {1, 2}
    assert figures["stage_by_clock"][-1] == 2, "two transient nodes to a reliable one"
    assert [(node["name"], node["state"]) for node in figures["nodes"]] == [
        ("r1", "ready"),
        ("t1", "ready"),
        ("t2", "ready"),
    ]
    assert (figures["events"], figures["repeated_micro_tasks"]) == ([], 0)
    moved = figures["bytes_moved"]
    assert moved["model"] == MODEL_BYTES
    assert moved["evaluate"] == 9 * MODEL_BYTES
    assert moved["checkpoint"] % MODEL_BYTES == 0
    assert moved["copy"] >= MODEL_BYTES, "two transient nodes served, and one kept"
    assert moved["hand_over"] >= MODEL_BYTES / 2, "a model of zeros travels as the upper halves of its values"
    # Of two servers a node is one at most, and who serves nothing reads all of it, every clock.
    assert CLOCKS * MODEL_BYTES <= moved["read"] <= 3 * CLOCKS * MODEL_BYTES
    assert moved["push"] > CLOCKS * MODEL_BYTES
    assert moved["restore"] == figures["bytes_not_read"] == 0
    assert figures["stalls"] == [], "nobody came or went"
    *_, (_, view) = replay(figures["timeline"])
    assert {name: state for name, (_, state) in view.nodes.items()} == dict.fromkeys(("r1", "t1", "t2"), "ready")
    assert [(server[0], backup) for server, backup in view.shards] == [("t", "r1")] * 2
    assert sorted(path.name for path in here.iterdir()) == ["home", "runs"]
    assert [path.name for path in here.parent.iterdir()] == [ODD_NAME]
    assert sorted(path.name for path in (here / "runs" / "calm").iterdir()) == ["blobs", "logs", "run.lock"]
    assert list((here / "home").iterdir()) == []

    again = train(here, "calm")
    assert again.code == 0, again
    assert json.loads(again.out) == figures
    assert "was trained to its end before; these are its figures" in again.err
    assert f"{figures['metrics']['accuracy']:.4f}" in again.err


def test_what_lies_in_a_directory_of_any_name_is_found(
    undisturbed: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    here, figures = undisturbed
    home = tmp_path / "home"
    for model in ("runs/calm/blobs/jobs/calm/model", str(here / "runs/calm/blobs/jobs/calm/model"), figures["model"]):
        code = (APP, "--code", str(paced.__file__))
        data = ("--data", "digits", "--out", str(tmp_path / "o.csv"))
        found = inside("predict", model, *data, *code, cwd=here, home=home)
        assert (found.code, found.err) == (0, ""), f"{model}: {found}"
    found = inside("logs", "calm", "--dir", str(here / "runs" / "calm"), cwd=tmp_path, home=home)
    assert (found.code, found.err) == (0, "")
    assert "controller" in found.out


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--seed", "1"), r"--seed 1: job calm was begun with 0; give that, or another --job"),
        (("--clocks", "41"), r"--clocks 41: job calm was begun with 120;"),
        (("--staleness", "1"), r"--staleness 1: job calm was begun with 0;"),
        (("--param", "step=3.0"), r"--param step 3\.0: job calm was begun with 4\.0;"),
        (("--param", "l2=0.1"), r"--param l2 0\.1: job calm was begun with nothing;"),
        (("--nodes", "r=2"), r"--nodes r= 2: job calm was begun with 1;"),
    ],
)
def test_a_job_that_was_begun_otherwise_is_refused(
    undisturbed: tuple[Path, dict[str, Any]], monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], says: str
) -> None:
    monkeypatch.chdir(undisturbed[0])
    step = () if "step=3.0" in options else STEP
    with pytest.raises(InputError, match=says):
        cli.main(["train", APP, "--job", "calm", *SAME, *step, *options], standalone_mode=False)


def test_a_script_of_events_leaves_the_model_as_it_would_have_been(
    tmp_path: Path, undisturbed: tuple[Path, dict[str, Any]]
) -> None:
    (tmp_path / "events.csv").write_text(
        "at,action,node,seconds\nclock:3,join,t9\nclock:6,kill,t1\nclock:10,notice,t2,0.2\nsecond:0.4,join,,\n"
    )
    figures = trained(tmp_path, "storm", "--events", "events.csv")
    told = [(event["at"], event["action"], event["node"]) for event in figures["events"]]
    assert told == [
        ("clock:3", "join", "t9"),
        ("clock:6", "kill", "t1"),
        ("clock:10", "notice", "t2"),
        ("second:0.4", "join", "t3"),
    ]
    assert [event["clock"] for event in figures["events"]][:3] == [3, 6, 10], "at those very clocks"
    assert figures["repeated_micro_tasks"] > 0, "the kill struck into the work"
    ends = {node["name"]: (node["state"], node["gone"]) for node in figures["nodes"]}
    assert ends["r1"] == ("ready", False)
    assert ends["t1"] == ("lost", True)
    assert ends["t2"] == ("drained", True), "killed when its notice had run out"
    assert [(release["node"], release["event"]) for release in figures["releases"]] == [("t2", "notice")]
    assert weights(figures).tobytes() == weights(undisturbed[1]).tobytes()
    assert figures["losses"] == undisturbed[1]["losses"]
    assert figures["metrics_by_clock"] == undisturbed[1]["metrics_by_clock"], "whatever befell the nodes"
    # Two may join in one clock.
    told = {(stall["event"], node) for stall in figures["stalls"] for node in stall["nodes"]}
    assert {("join", "t9"), ("notice", "t2"), ("loss", "t1")} <= told
    for stall in figures["stalls"]:
        assert stall["clocks"] is None or 1 <= stall["clocks"][0] <= stall["clocks"][1] <= CLOCKS
        assert stall["stall_ms"] is None or stall["stall_ms"] >= 0
    (loss,) = [stall for stall in figures["stalls"] if stall["event"] == "loss"]
    assert loss["clocks"][0] <= 7, "it struck into the clock after the sixth, or what it had went back further"

    again = train(
        tmp_path, "storm", "--events", "events.csv", "--explain", "t1", "--explain", "shard:1", "--report", "r.html"
    )
    assert again.code == 0, again
    of_t1, of_shard = again.err.split("shard 1: ")
    story = [row for row in of_t1.splitlines() if " t1 " in row]
    assert "t1 (transient, 1 thread(s)) joined" in story[0]
    assert any(re.search(r"t1 was given \d+ task\(s\) and did \d+", row) for row in story)
    assert any("t1 is gone: " in row for row in story)
    assert "r1 serves shards 0-1, epoch 1" in of_shard
    assert "the model of clock 120 is to be gathered" in of_shard
    page = (tmp_path / "r.html").read_text()
    assert "Stalls of the remaining nodes" in page
    assert "data:image/svg+xml;base64," in page
    assert "http://" not in re.sub(r"base64,[^\"]*", "", page)


@pytest.mark.parametrize("what", ["t8", "shard:2", "shard:", "*"])
def test_the_story_of_who_is_not_there_is_refused(
    undisturbed: tuple[Path, dict[str, Any]], monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.chdir(undisturbed[0])
    says = rf"--explain {re.escape(what)}: job calm has no such node or shard; there are r1, t1, t2, shard:0 to shard:1"
    with pytest.raises(InputError, match=says):
        cli.main(["train", APP, "--job", "calm", *SAME, *STEP, "--explain", what], standalone_mode=False)


# -- broken off -----------------------------------------------------------------------------------------------------


def begun(directory: Path, number: int, *options: str) -> AbstractContextManager[Running]:
    """Start the training in `directory`, for the `number`th time."""
    verb = f"train {APP} --job broken"
    return running(directory, *SAME, *STEP, *options, verb=verb, output=directory.with_suffix(f".{number}.txt"))


def kept_clock(directory: Path) -> int:
    """The clock of the newest whole checkpoint; 0 where there is none."""
    place = directory / "blobs" / "jobs" / "broken" / "checkpoints"
    found = [int(path.parent.name.rpartition("-")[2]) for path in place.glob("clock-*/manifest.json")]
    return max(found, default=0)


def test_broken_off_three_ways_it_goes_on_from_where_it_was(
    tmp_path: Path, undisturbed: tuple[Path, dict[str, Any]]
) -> None:
    directory = tmp_path / "run"
    first, second = np.random.default_rng(3).integers((10, 50), (40, 60))
    (tmp_path / "events.csv").write_text(f"clock:{first},kill,t1\nclock:{second},join\n")
    events = ("--events", str(tmp_path / "events.csv"))
    to_go_on = rf"to go on: \S*proteus train {APP} --job broken --dir {re.escape(str(directory))} (?P<given>.*)"

    with begun(directory, 0, *events) as run:  # while its nodes start
        wait_for((directory / "logs" / "r1.log").exists, "the first node")
        run.process.send_signal(signal.SIGINT)
        assert run.process.wait(20 * PATIENCE) == 130
        last = run.text().splitlines()[-1]
        said = re.fullmatch(rf"proteus: interrupted: job broken is at clock 0 of {CLOCKS}; {to_go_on}", last)
        assert said, last
        given = shlex.split(said["given"])
        assert sorted(given) == sorted([*SAME, *STEP, *events]), "all options that were given, and no other"
        assert given[given.index("--events") + 1] == str(tmp_path / "events.csv")

    importlib.import_module(
        "proteus_spot.flows.local_training"
    )  # what is refused below is so at once, and not after the last clock
    asked = ("--checkpoint-every", "1000", "--explain", "t1", "--dashboard")
    with begun(directory, 1, *events, *asked) as run:  # while it trains
        run.wait_said(rf"clock {first}: kill t1")
        pages = re.search(r"dashboard: (http://\S+)", run.text())
        assert pages is not None
        assert "bokeh.min.js" in httpx.get(pages[1]).text, "what Dask draws, and not what it says for lack of bokeh"
        with pytest.raises(InputError, match="a run that is under way has it; name another directory"):
            cli.main(["train", "mlr", "--dir", str(directory)], standalone_mode=False)
        run.process.send_signal(signal.SIGTERM)
        assert run.process.wait(20 * PATIENCE) == 143
        assert re.search("t1 is gone: ", run.text()), "the story up to there is told"
        last = run.text().splitlines()[-1]
        found = re.fullmatch(rf"proteus: interrupted: job broken is at clock (\d+) of {CLOCKS}; {to_go_on}", last)
        assert found, run.text()
        # what t1 had not given back of the clock it died in is done again, from the clock before
        assert first - 1 <= int(found[1]) == kept_clock(directory) < CLOCKS
        assert "Traceback" not in run.text()

    with begun(directory, 2, *events) as run:  # without a word
        wait_for(lambda: kept_clock(directory) > int(found[1]), "a later checkpoint", 60)
        run.process.kill()
        run.process.wait()
    assert f"goes on from clock {found[1]}\n" in run.text()

    with pytest.raises(InputError, match=rf"--events: job broken has seen clock:{first},kill,t1, which the file does"):
        cli.main(["train", APP, "--job", "broken", "--dir", str(directory), *SAME, *STEP], standalone_mode=False)
    figures = trained(tmp_path, "broken", "--dir", str(directory), *events)
    assert [(event["at"], event["node"]) for event in figures["events"]] == [
        (f"clock:{first}", "t1"),
        (f"clock:{second}", "t3"),
    ]
    assert "t1" not in [node["name"] for node in figures["nodes"]], "what was killed stays so"
    assert weights(figures).tobytes() == weights(undisturbed[1]).tobytes()
    assert figures["losses"] == undisturbed[1]["losses"]


def test_a_project_that_moved_goes_on_with_its_data_and_refuses_others(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    rows = [f"{row % 7},{row % 5},{row % 2}" for row in range(200)]
    (old / "mine.csv").write_text("\n".join(rows))
    command = ("train", "mlr", "--data", "mine.csv", "--job", "moved", "--clocks", "40", "--nodes", "r=1")
    home = tmp_path / "home"
    with subprocess.Popen([PROTEUS, *command], cwd=old, env=environment(home), stderr=subprocess.DEVNULL) as process:
        wait_for((old / "runs/moved/blobs/jobs/moved/begun.json").exists, "its begin", 60)
        process.send_signal(signal.SIGINT)
        assert process.wait(20 * PATIENCE) == 130
    old.rename(new)
    ended = proteus(*command, "--json", "-", cwd=new, home=home)
    assert ended.code == 0, ended
    figures = json.loads(ended.out)
    assert (figures["state"], figures["clocks"]) == ("finished", 40)
    assert not old.exists()
    new.rename(old)
    assert json.loads(proteus(*command, "--json", "-", cwd=old, home=home).out) == figures, "its figures, again"
    (old / "mine.csv").write_text("\n".join([*rows[:-1], "9,9,1"]))
    (old / "mine.csv").rename(old / "other.csv")
    refused = proteus(*(word.replace("mine", "other") for word in command), cwd=old, home=home)
    assert refused.code == 2, refused
    says = r"proteus: --data \S+other.csv: job moved was begun with \S+mine.csv; give that, or another --job\n"
    assert re.fullmatch(says, refused.err)


# -- an application of one's own ------------------------------------------------------------------------------------

MEAN = """
import numpy as np
from proteus_spot.psengine.apps.base import Work
from proteus_spot.psengine.config import TableSpec

class Mean:
    def __init__(self, n_inputs, n_examples, *, step):
        if step <= 0:
            raise ValueError("step must be above 0")
        self.n_inputs, self.n_examples, self.step = n_inputs, n_examples, step
    def tables(self):
        return (TableSpec("weights", 1, self.n_inputs),)
    def initial(self, table, rows, rng):
        return np.zeros((rows[1] - rows[0], table.n_cols), np.float32)
    def prepare(self, arrays):
        return arrays["x"]
    def run(self, x, params, clock):
        error = x - params["weights"]
        return Work({"weights": np.float32(self.step / self.n_examples) * error.sum(axis=0, keepdims=True)},
                    float((error**2).sum()), len(x))
    def evaluate(self, params, heldout):
        return {"squared": float(((heldout["x"] - params["weights"]) ** 2).mean())}
"""


def test_an_application_of_ones_own_is_tried_again_when_its_parameters_were_wrong(tmp_path: Path) -> None:
    (tmp_path / "mean.py").write_text(MEAN)
    command = ("train", "mean:Mean", "--job", "own", "--nodes", "r=1,t=0", "--clocks", "5", "--json", "out.json")
    wrong = proteus(*command, "--param", "step=-1", cwd=tmp_path, home=tmp_path / "home")
    assert wrong.code == 2, wrong
    assert re.fullmatch(r"proteus: .*step must be above 0.*\n", wrong.err.splitlines(keepends=True)[-1]), wrong.err
    assert not (tmp_path / "out.json").exists()
    (tmp_path / "mean.py").write_text(MEAN + "# another file\n")
    right = proteus(*command, "--param", "step=0.5", cwd=tmp_path, home=tmp_path / "home")
    assert right.code == 0, right
    assert json.loads((tmp_path / "out.json").read_text())["metrics"]["squared"] > 0
    assert processes_of(tmp_path) == []


# -- bad input ------------------------------------------------------------------------------------------------------

BAD = {
    "no application": (["nothing"], r"app 'nothing': is not known"),
    "no module": (["mine:App"], r"APP mine:App: there is no mine\.py here, and mine is not installed; give --code"),
    "no such parameter": (["mlr", "--param", "depth=3"], r"--param: .*depth"),
    "parameter without value": (["mlr", "--param", "depth"], r"--param depth: want NAME=VALUE"),
    "data of no form": (["mlr", "--data", "table.xls"], r"table\.xls.*unknown; known are digits"),
    "no data file": (["mlr", "--data", "none.csv"], r"none\.csv: there is no such file; check the path"),
    "too many partitions": (["mlr", "--partitions", "4000"], r"too few for 4000 parts"),
    "far too many partitions": (["mlr", "--partitions", "5000"], r"--partitions: .*4096 \(is 5000\); fix the option"),
    "too stale": (["mlr", "--staleness", "101"], r"--staleness: .*100 \(is 101\)"),
    "nodes of another kind": (["mlr", "--nodes", "x=1"], r"--nodes x=1: want the numbers of reliable and of transient"),
    "nodes twice": (["mlr", "--nodes", "r=1,r=2"], r"--nodes r=1,r=2: want"),
    "no number of nodes": (["mlr", "--nodes", "r=one"], r"--nodes r=one: want"),
    "nobody reliable": (
        ["mlr", "--nodes", "t=3"],
        r"--nodes t=3: the model is served by reliable nodes; give at least",
    ),
    "too many nodes": (["mlr", "--nodes", "r=65"], r"--nodes r=65: at most 64 of a tier"),
    "no rule": (["mlr", "--until", "loss=low"], r"--until: 'loss=low' is not a rule: want loss=NUMBER, no-improvement"),
    "one ratio": (["mlr", "--stage-above", "2"], r"--stage-above 2: want two numbers, as in 1,15"),
    "ratios that fall": (["mlr", "--stage-above", "9,3"], r"--stage-above 9,3: want ratios from 0 on"),
    "bad job id": (["mlr", "--job", "Job_1"], r"job id 'Job_1': want 1 to 63 lower-case letters"),
    "no event file": (["mlr", "--events", "none.csv"], r"none\.csv: there is no such file"),
    "bad event": (
        ["mlr", "--events", "bad.csv", "--nodes", "r=1,t=2"],
        r"bad\.csv: line 2: node t8 does not exist at that time; there are r1, t2",
    ),
    "event after the end": (["mlr", "--events", "bad.csv", "--clocks", "4"], r"line 1: clock:5 never comes"),
    "dir is a file": (["mlr", "--dir", "bad.csv"], r"--dir .*bad\.csv is a file; name a directory"),
    "checkpoints nowhere": (["mlr", "--checkpoint", "nothing://here"], r"--checkpoint: nothing://here: "),
    "JSON in no directory": (["mlr", "--json", "none/out.json"], r"--json none/out\.json: there is no directory none"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_told_in_one_line_and_leaves_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.csv").write_text("clock:5,kill,t1\nclock:6,kill,t8\n")
    options, says = BAD[name]
    with pytest.raises(InputError) as refused:
        cli.main(["train", *options], standalone_mode=False)
    assert re.search(says, str(refused.value)), refused.value
    assert "\n" not in str(refused.value)
    assert [path.name for path in tmp_path.iterdir()] == ["bad.csv"]
