"""Bad input of the command ends with exit code 2, one line and no trace of itself."""

import gzip
import re
import socket
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.cli_process import Outcome, inside, proteus, tree
from tests.support.price_rows import HEADER, price_row

GOOD_ROWS = [
    price_row(f"2016-03-{day:02}T00:00:00Z", kind, price=f"0.02{day % 10}")
    for day in range(1, 29)
    for kind in ("c4.large", "m4.large")
]


@dataclass(frozen=True)
class Bad:
    """A bad input: options (with {here} for a directory of its own), and what the line must say."""

    options: str
    says: str
    variables: tuple[tuple[str, str], ...] = ()


#: The key of some simulated market.
KEY = (("AWS_ACCESS_KEY_ID", "somebody"), ("AWS_SECRET_ACCESS_KEY", "unchecked"))

BAD: Mapping[str, Bad] = {
    "unknown verb": Bad("walk", r"No such command 'walk'"),
    "unknown option": Bad("run --colour red", r"No such option '--colour'"),
    "option without value": Bad("run --hours", r"'--hours' requires an argument"),
    "option of another kind": Bad("run --hours many", r"'--hours'.*'many'"),
    "too few hours": Bad("run --hours 0.01", r"'--hours'.*0\.01"),
    "hours are no number": Bad("run --hours nan", r"--hours: must be a finite number \(is nan\); fix the option"),
    "endless hours": Bad("run --hours inf", r"--hours: must be a finite number \(is inf\); fix the option"),
    "no price file": Bad("run --prices {here}/none.csv", r"none\.csv: there is no such file; check the path"),
    "price file is a directory": Bad("run --prices {here}", r": is a directory; name a file in it"),
    "empty price file": Bad("run --prices {here}/empty.csv", r"empty\.csv: is empty; give a file with the columns"),
    "price file of something else": Bad("run --prices {here}/noise.csv", r"noise\.csv: .*row 1.* lacks timestamp"),
    "price file cut short": Bad("run --prices {here}/cut.csv.gz", r"cut\.csv\.gz: .*damaged or cut short; fetch"),
    "bad row": Bad("run --prices {here}/bad.csv", r"bad\.csv: row 4: 'cheap' is not a price; write dollars"),
    "price file too short": Bad("run --hours 9000 --prices {here}/good.csv", r"good\.csv: ends before 9000 hours"),
    "unknown market": Bad("run --market foo/us-east-1a", r"--market foo/us-east-1a: .*name one of these"),
    "no market": Bad("run --market c4.large", r"--market c4\.large: .*name one of these"),
    "market not in the file": Bad(
        "run --prices {here}/good.csv --market c4.large/us-east-1f", r"--market c4\.large/us-east-1f: has no prices in"
    ),
    "type in no catalogue": Bad(
        "run --prices {here}/unknown.csv", r"unknown\.csv: instance type z9\.huge is not in the shipped catalogue; give"
    ),
    "no on-demand price": Bad(
        "run --prices {here}/good.csv --catalog {here}/unpriced.csv",
        r"good\.csv: instance type m4\.large has no on-demand price on 2016-03-\d\d in .*unpriced\.csv; give --catalog",
    ),
    "no on-demand price for the generated market": Bad(
        "run --catalog {here}/unpriced.csv", r"the generated market: instance type \S+ .*unpriced\.csv; give --catalog"
    ),
    "bad catalogue": Bad("run --catalog {here}/catalog.csv", r"catalog\.csv: row 2: .*; fix the row"),
    "no catalogue": Bad("run --catalog {here}/none.csv", r"none\.csv: there is no such file; check the path"),
    "nobody reliable": Bad("run --reliable 0", r"'--reliable': 0 is not in the range x>=1"),
    "too many reliable": Bad("run --reliable 65", r"--reliable: .*64 \(is 65\); fix the option"),
    "machines too large": Bad("run --max-vcpus 1", r"--max-vcpus 1: the smallest machine .* has 2; give"),
    "no money": Bad("run --budget 0", r"'--budget': 0.0 is not in the range x>0"),
    "no amount of money": Bad("run --budget nan", r"--budget: must be a finite number \(is nan\); fix the option"),
    "a deadline that is none": Bad("run --clocks 9 --deadline soon", r"--deadline: .*soon.*; fix the option"),
    "a deadline for hours": Bad("run --deadline 12h", r"--deadline: .* counts its work in clocks; give --clocks; fix"),
    "a price of another billing model": Bad("run --flat-price 1", r"--flat-price 1: is for --billing flat, not for"),
    "unknown billing model": Bad("run --billing free", r"'--billing': 'free' is not one of 'hourly-refund', 'per-sec"),
    "unknown policy": Bad(
        "run --policy greedy", r"--policy: unknown policy 'greedy'; there are best, deadline, fixed-delta:USD, "
    ),
    "no bid delta": Bad("run --policy fixed-delta:little", r"--policy: 'fixed-delta:little': not an amount of money"),
    "no eviction model": Bad("run --evictions {here}/none.npz", r"none\.npz: there is no such file; check the path"),
    "a model of something else": Bad(
        "run --evictions {here}/noise.csv", r"noise\.csv: is not an eviction model .*evictions fit"
    ),
    "capacity of no market": Bad(
        "run --availability {here}/up.json", r"--availability: not a market: .*write TYPE/ZONE=FILE"
    ),
    "capacity of another market": Bad(
        "run --availability c4.large/us-east-1f={here}/up.json",
        r"c4\.large/us-east-1f is not a market of this run; write",
    ),
    "capacity of a market that runs already": Bad(
        "run --endpoint http://127.0.0.1:9 --availability c4.large/us-east-1a={here}/up.json",
        r"has its own capacity; give one",
    ),
    "unknown application": Bad("run mlp", r"app 'mlp': is not known; use one of .*, or module:Class"),
    "no code": Bad("run mine:App --code {here}/mine.py", r"code \S+/mine\.py: cannot be read: No such file"),
    "code that is nowhere": Bad("run mine:App", r"APP mine:App: there is no mine\.py here, .*give --code FILE"),
    "code of another app": Bad("run mine:App --code {here}/good.csv", r"good\.csv: is no \.py file and no wheel"),
    "code of a built-in application": Bad("run --code {here}/mine.py", r"mine\.py: app mlr is built in and takes no"),
    "parameter without a value": Bad("run --param step", r"--param step: want NAME=VALUE, as in --param step=0\.5"),
    "no such parameter": Bad("run --param depth=3", r"--param: app 'mlr' does not take these app_params: .*'depth'"),
    "unknown data": Bad("run --data mnist", r"mnist': unknown; known are digits, .* ends in \.npz, \.csv, \.tsv"),
    "no data": Bad("run --data {here}/none.svm", r"none\.svm: there is no such file; check the path"),
    "data are something else": Bad(
        "run --data {here}/good.csv", r"good\.csv: line 2: column 1 .* is '2016-.*; write a"
    ),
    "data cut short": Bad("run --data {here}/cut.csv.gz", r"cut\.csv\.gz: the gzip stream is damaged or cut short"),
    "data without classes": Bad("run --data {here}/values.csv", r"which are no classes; mlr wants at least 2"),
    "too few data": Bad("run --data {here}/few.csv", r"few\.csv: has 4 rows to train on, too few for 16 parts"),
    "bad job id": Bad("run --job Job_1", r"--job: .*'Job_1'\); fix the option"),
    "too stale": Bad("run --staleness 101", r"--staleness: .*100 \(is 101\); fix the option"),
    "too fast": Bad("run --scale 1000", r"PROTEUS_TICK_S: .*use a scale of at most 120"),
    "a bad setting": Bad("run", r"PROTEUS_TICK_S: .*'often'", (("PROTEUS_TICK_S", "often"),)),
    "database is a directory": Bad("run --database sqlite:///{here}", r": is a directory; --database must name a file"),
    "database is none": Bad("run --database sqlite:///{here}/noise.csv", r"not a database; --database names no"),
    "database below a file": Bad(
        "run --database sqlite:///{here}/noise.csv/x.db", r"--database .*noise\.csv is a file"
    ),
    "database in no place": Bad("run --database sqlite:////proc/none/x.db", r"(?i)database|--dir"),
    "database of another program": Bad("run --database sqlite:///{here}/other.db", r"another program's table 'jobs'"),
    "database in memory": Bad("run --database sqlite://", r"--database: the state must outlive a process; give a file"),
    "no database URL": Bad("run --database state.db", r"--database: not a database URL; want sqlite:///PATH"),
    "unknown database": Bad("run --database oracle://host/name", r"--database: oracle is not supported; want"),
    "dir is a file": Bad("run --dir {here}/noise.csv", r"--dir .*noise\.csv: .* is a file; name a directory"),
    "dir below a file": Bad("run --dir {here}/noise.csv/run", r"--dir .*noise\.csv is a file; name a directory"),
    "dir in no place": Bad("run --dir /proc/none/run", r"--dir /proc/none/run: .*; name another directory"),
    "JSON in no directory": Bad(
        "run --json {here}/none/out.json", r"--json .*: there is no directory .*/none; make it"
    ),
    "JSON is a directory": Bad("run --json {here}", r"--json .*: is a directory; name a file in it"),
    "nobody at the endpoint": Bad(
        "run --endpoint http://127.0.0.1:9", r"--endpoint http://127\.0\.0\.1:9: .*; name one", KEY
    ),
    "no key for the endpoint": Bad("run --endpoint http://127.0.0.1:9", r"--endpoint \S+: .*set AWS_ACCESS_KEY_ID"),
    "endpoint is not a URL": Bad("run --endpoint nonsense", r"--endpoint nonsense: .*; name one that answers as EC2"),
    "endpoint is silent": Bad(
        "run --endpoint http://127.0.0.1:{silent}", r"--endpoint \S+: .*; name one that answers", KEY
    ),
}


@pytest.fixture(scope="module")
def silent_port() -> Iterator[int]:
    """A port that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


#: Of the bad inputs those that are given to a process of its own as well: every thirtieth.
APART = frozenset(sorted(BAD)[::30])


def _inputs(here: Path) -> None:
    rows = [HEADER, *GOOD_ROWS]
    (here / "good.csv").write_text("\n".join(rows) + "\n")
    (here / "empty.csv").write_text("")
    (here / "noise.csv").write_text("this is neither\na table nor a database, and it is longer than a header\n" * 40)
    (here / "cut.csv.gz").write_bytes(gzip.compress("\n".join(rows * 50).encode())[:-200])
    (here / "bad.csv").write_text("\n".join([*rows[:3], rows[3].replace("0.022", "cheap"), *rows[4:]]) + "\n")
    (here / "unknown.csv").write_text("\n".join(rows).replace("m4.large", "z9.huge") + "\n")
    catalog = "instance_type,region,vcpu,memory_gib,on_demand_usd_per_h,from_date"
    (here / "unpriced.csv").write_text(
        f"{catalog}\nc4.large,us-east-1,2,3.75,0.105,\nm4.large,us-east-1,2,8,0.12,2016-12-01\n"
    )
    (here / "catalog.csv").write_text(f"{catalog}\nc4.large,us-east-1,two,3.75,0.105,\n")
    (here / "up.json").write_text('{"metadata": {"gap_seconds": 600}, "data": [1, 0, 1]}')
    (here / "values.csv").write_text("".join(f"{row},{row + 0.5}\n" for row in range(40)))
    (here / "few.csv").write_text("".join(f"{row},{row % 2}\n" for row in range(6)))
    with sqlite3.connect(here / "other.db") as other:
        other.execute("create table jobs (name text)")
    other.close()


@dataclass(frozen=True)
class Refusal:
    """What a bad input led to."""

    outcome: Outcome
    new: tuple[str, ...]


@pytest.fixture(scope="module")
def refusals(
    tmp_path_factory: pytest.TempPathFactory, silent_port: int, request: pytest.FixtureRequest
) -> Mapping[str, Refusal]:
    """All bad inputs that were asked for, each in a directory of its own; some through a process of their own, too."""
    wanted = {item.callspec.params.get("name") for item in request.session.items if hasattr(item, "callspec")} & set(
        BAD
    )

    def refuse(name: str) -> Refusal:
        here = tmp_path_factory.mktemp("bad")
        _inputs(here)
        (here / "home").mkdir()
        before = tree(here)
        options = [part.format(here=here, silent=silent_port) for part in BAD[name].options.split()]
        outcome = inside(*options, cwd=here, home=here / "home", **dict(BAD[name].variables))
        if name in APART:
            apart = proteus(*options, cwd=here, home=here / "home", timeout_s=30, **dict(BAD[name].variables))
            assert apart == outcome
        after = tree(here)
        return Refusal(outcome, tuple(path for path in after if after[path] != before.get(path)))

    return {name: refuse(name) for name in sorted(wanted)}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_ends_with_2_one_line_and_no_trace(refusals: Mapping[str, Refusal], name: str) -> None:
    outcome, new = refusals[name].outcome, refusals[name].new
    assert outcome.code == 2, outcome
    assert outcome.out == ""
    assert outcome.err.startswith("proteus: ")
    assert outcome.err.count("\n") == 1, outcome.err
    assert re.search(BAD[name].says, outcome.err), outcome.err
    assert not new, f"wrote {new}"


def test_the_same_input_without_the_fault_is_taken(tmp_path: Path) -> None:
    """The good price file is the one that the bad ones were made from; only the last option is bad here."""
    _inputs(tmp_path)
    options = ("run", "--prices", str(tmp_path / "good.csv"), "--dir", str(tmp_path / "run"))
    outcome = proteus(*options, "--endpoint", "http://127.0.0.1:9", cwd=tmp_path, home=tmp_path / "home")
    assert outcome.code == 2
    assert "--endpoint" in outcome.err


def test_a_directory_that_another_run_has_is_refused(tmp_path: Path) -> None:
    import fcntl

    directory = tmp_path / "run"
    directory.mkdir()
    with (directory / "run.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        outcome = proteus("run", "--dir", str(directory), cwd=tmp_path, home=tmp_path / "home")
    assert outcome.code == 2
    assert re.fullmatch(r"proteus: --dir \S+: a run that is under way has it; name another directory\n", outcome.err)
    assert [path.name for path in directory.iterdir()] == ["run.lock"]
