"""A user's code: refused before it is shipped, or received unchanged."""

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from proteus_spot.infra.applications import code_files
from proteus_spot.infra.applications.code_files import UnreadableCode, read_code, split_app
from proteus_spot.infra.applications.code_shipping import JobCode, check_code, fetch_code, ship_code, shipped_code
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.storage.blobs import Blobs, DamagedSet
from proteus_spot.infra.storage.job_paths import JobPaths
from proteus_spot.psengine.config import JobConfig, JobError
from tests.support.wheels import write_wheel

GOOD = """
class App:
    def tables(self): ...
    def initial(self, table, rows, rng): ...
    def prepare(self, arrays): ...
    def run(self, data, params, clock): ...
    def evaluate(self, params, heldout): ...
"""


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Blobs((tmp_path / "blobs").as_uri())


@pytest.fixture(autouse=True)
def _imports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Remove what a fetch adds to `sys.path`, and the modules imported from there."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("mine", "pack"):
            del sys.modules[name]


def written(directory: Path, name: str = "mine.py", text: str | bytes = GOOD) -> Path:
    path = directory / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@dataclass(frozen=True)
class Bad:
    make: Callable[[Path], Path]
    says: str
    app: str = "mine:App"


def wheel(files: Mapping[str, str | bytes], **kind: str) -> Callable[[Path], Path]:
    return lambda directory: write_wheel(directory, files, **kind)


def source(text: str | bytes, name: str = "mine.py") -> Callable[[Path], Path]:
    return lambda directory: written(directory, name, text)


def damaged_wheel(directory: Path) -> Path:
    path = write_wheel(directory, {"mine.py": GOOD})
    data = bytearray(path.read_bytes())
    data[60] ^= 0xFF
    path.write_bytes(data)
    return path


BAD: Mapping[str, Bad] = {
    "not there": Bad(lambda directory: directory / "mine.py", r"cannot be read: No such file.*; check the path"),
    "a directory": Bad(lambda directory: directory, r"is no \.py file and no wheel; .*pip wheel --no-deps"),
    "another ending": Bad(source(GOOD, "mine.txt"), r"mine\.txt: is no \.py file and no wheel"),
    "another name": Bad(source(GOOD, "yours.py"), r"yours\.py: app mine:App is looked for in module mine; name the"),
    "a module of a package": Bad(source(GOOD), r"a module of a package travels in a wheel", "pack.mine:App"),
    "a built-in one": Bad(source(GOOD), r"app mlr is built in and takes no code", "mlr"),
    "no such class": Bad(source(GOOD), r"mine\.py: has no Other of app mine:Other; its classes are App", "mine:Other"),
    "no class at all": Bad(source("x = 1"), r"has no App of app mine:App; its classes are none"),
    "a method lacks": Bad(source(GOOD.replace("evaluate", "assess")), r"App has no method evaluate\(\)"),
    "a syntax error": Bad(source("class App:\n  def run(self:\n"), r"mine\.py: line 2: .*; fix it"),
    "no text": Bad(source(b"class App:\0"), r"mine\.py: (line \d+: |is not Python source: )?source code.*null bytes"),
    "a module of Python": Bad(source(GOOD, "json.py"), r"json is a module of Python itself; call", "json:App"),
    "our package": Bad(source(GOOD, "proteus_spot.py"), r"proteus_spot is the package of Proteus", "proteus_spot:App"),
    "names from where they were": Bad(
        source("from psengine import TableSpec, Work\n" + GOOD),
        r"line 1: from psengine import TableSpec, Work; write from proteus_spot import TableSpec, Work",
    ),
    "a package we need": Bad(source(GOOD, "numpy.py"), r"numpy is a package that Proteus itself needs", "numpy:App"),
    "no zip": Bad(source(b"no zip", "mine-1.0-py3-none-any.whl"), r"is not a wheel that can be unpacked: .*pip wheel"),
    "a damaged wheel": Bad(damaged_wheel, r"damaged; make the wheel again|is not a wheel that can be unpacked"),
    "a wheel for one machine": Bad(
        wheel({"mine.py": GOOD}, tag="cp311-cp311-linux_x86_64"), r"is not a wheel of pure Python"
    ),
    "compiled parts": Bad(wheel({"mine.py": GOOD, "pack/fast.so": b"\x7f"}), r"holds pack/fast\.so, which is not"),
    "a wheel of something else": Bad(
        wheel({"pack/__init__.py": ""}), r"holds no module mine of app mine:App; it holds pack$"
    ),
    "a wheel without the class": Bad(wheel({"mine.py": "x = 1"}), r"mine-1\.0-\S+: mine\.py: has no App"),
    "a wheel that hides another": Bad(
        wheel({"mine.py": GOOD, "distributed/__init__.py": ""}), r"distributed is a package that Proteus itself needs"
    ),
    "a wheel that hides Python's": Bad(wheel({"mine.py": GOOD, "queue.py": ""}), r"queue is a module of Python"),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
def test_what_cannot_travel_is_refused_and_nothing_is_written(tmp_path: Path, blobs: Blobs, bad: Bad) -> None:
    code = str(bad.make(tmp_path))
    with pytest.raises(InputError, match=bad.says) as error:
        ship_code(blobs, "job", bad.app, code)
    assert "\n" not in str(error.value)
    assert str(error.value).startswith(f"code {code}")
    assert blobs.list() == []


@pytest.mark.parametrize("app", ["mlp", "a b:App", "mine:", ":App", "mine:App:x", "pack..mine:App", ""])
def test_an_app_that_is_none_is_refused(blobs: Blobs, app: str) -> None:
    with pytest.raises(InputError, match=r"^app '.*': is not known; use one of .*mlr.*, or module:Class$"):
        ship_code(blobs, "job", app, "")


def test_apps_are_split() -> None:
    assert split_app("mlr") == ("", "")
    assert split_app("pack.mine:App") == ("pack.mine", "App")


@pytest.mark.parametrize(
    "text",
    [
        "from pack.apps import *",
        "from pack.apps import App",
        "from pack.apps import Base as App",
        "def __getattr__(name): ...",
        "try:\n    from fast import App\nexcept ImportError:\n    App = None",
        "from pack import Base\nclass App(Base):\n    pass",
        "def App(**params): ...",
        "made = App = print",
    ],
)
def test_what_cannot_be_known_without_running_it_is_let_pass(tmp_path: Path, text: str) -> None:
    assert read_code("mine:App", str(written(tmp_path, text=text))).name == "mine.py"


def test_an_application_has_executors_or_run(tmp_path: Path) -> None:
    with_executors = GOOD.replace("def run(", "def executor(")
    assert with_executors != GOOD
    assert read_code("mine:App", str(written(tmp_path, text=with_executors))).name == "mine.py"
    with pytest.raises(InputError, match=r"App has no method run\(\)"):
        read_code("mine:App", str(written(tmp_path, text=GOOD.replace("def run(", "def work("))))


def test_large_files_do_not_travel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_files, "MAX_BYTES", 2**20)
    with pytest.raises(InputError, match="has more than 1 MB; code travels to every node, data do not"):
        read_code("mine:App", str(written(tmp_path, text=GOOD + "#" * 2**20)))
    monkeypatch.setattr(code_files, "_MAX_UNPACKED", 2**20)
    bomb = write_wheel(tmp_path, {"mine.py": GOOD, "mine.txt": b"0" * 2**20})
    with pytest.raises(InputError, match=r"unpacks to \d+ bytes; at most 1048576 travel"):
        read_code("mine:App", str(bomb))


def test_code_is_written_once_and_kept(tmp_path: Path, blobs: Blobs) -> None:
    path = written(tmp_path)
    digest = ship_code(blobs, "job", "mine:App", str(path))
    manifest = blobs.read_bytes(f"{JobPaths('job').code}/manifest.json")
    assert ship_code(blobs, "job", "mine:App", path.as_uri()) == digest == shipped_code(blobs, "job")
    assert blobs.read_bytes(f"{JobPaths('job').code}/manifest.json") == manifest
    path.write_text(GOOD + "# edited")
    for refuse in (ship_code, check_code):
        with pytest.raises(InputError, match=rf"job job began with code {digest[:12]}, and this is [0-9a-f]{{12}}"):
            refuse(blobs, "job", "mine:App", str(path))
        with pytest.raises(InputError, match=f"job job: began with code {digest[:12]}; give that again, or another"):
            refuse(blobs, "job", "mine:App", "")
    assert ship_code(blobs, "other", "mine:App", str(path)) != digest


def test_a_job_that_began_goes_on_without_the_file(tmp_path: Path, blobs: Blobs) -> None:
    path = written(tmp_path)
    digest = ship_code(blobs, "job", "mine:App", str(path))
    path.unlink()
    assert ship_code(blobs, "job", "mine:App", str(path)) == digest
    with pytest.raises(UnreadableCode):
        ship_code(blobs, "other", "mine:App", str(path))


def test_nothing_travels_for_what_is_installed(blobs: Blobs, tmp_path: Path) -> None:
    assert ship_code(blobs, "job", "mlr", "") == ship_code(blobs, "job", "mine:App", "") == ""
    assert fetch_code(blobs, "job", tmp_path / "place") == ""
    assert not (tmp_path / "place").exists()


def test_what_arrives_goes_before_everything_else(tmp_path: Path, blobs: Blobs) -> None:
    digest = ship_code(blobs, "job", "mine:App", str(written(tmp_path, text=GOOD + "WHERE = 'shipped'")))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    written(elsewhere, text="WHERE = 'elsewhere'")
    sys.path.insert(0, str(elsewhere))
    assert fetch_code(blobs, "job", tmp_path / "place") == digest
    import mine  # type: ignore[import-not-found]

    assert mine.WHERE == "shipped"


def test_a_wheel_arrives_with_what_it_holds_besides_modules(tmp_path: Path, blobs: Blobs) -> None:
    files = {
        "pack/__init__.py": "",
        "pack/deep/__init__.py": "from pack.base import Base\nclass App(Base): ...",
        "pack/base.py": GOOD.replace("App", "Base"),
        "pack/words.txt": "seven",
        "mine-1.0.data/purelib/pack/late.py": "LATE = 1",
        "mine-1.0.data/scripts/run": "#!python",
    }
    digest = ship_code(blobs, "job", "pack.deep:App", str(write_wheel(tmp_path, files)))
    assert fetch_code(blobs, "job", tmp_path / "place") == digest
    import importlib.metadata
    import importlib.resources

    import pack.late  # type: ignore[import-not-found]

    assert pack.late.LATE == 1
    assert importlib.resources.files("pack").joinpath("words.txt").read_text() == "seven"
    assert importlib.metadata.version("mine") == "1.0"
    assert not list((tmp_path / "place").rglob("run"))


def test_a_wheel_that_pip_makes_is_taken(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
        '[project]\nname = "my-apps"\nversion = "2"\n[tool.setuptools]\npy-modules = ["mine"]\n'
    )
    written(tmp_path)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index", "-q", "."]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    (made,) = tmp_path.glob("*.whl")
    assert read_code("mine:App", str(made)).name == "my_apps-2-py3-none-any.whl"


def test_a_flipped_byte_is_seen(tmp_path: Path, blobs: Blobs) -> None:
    ship_code(blobs, "job", "mine:App", str(written(tmp_path)))
    (flipped,) = (tmp_path / "blobs").rglob("mine.py")
    data = bytearray(flipped.read_bytes())
    data[10] ^= 1
    flipped.write_bytes(data)
    with pytest.raises(DamagedSet, match=r"mine\.py: its content differs from the manifest's digest"):
        fetch_code(blobs, "job", tmp_path / "place")
    with pytest.raises(JobError, match=r"differs from the manifest's digest"):
        JobCode(blobs, "job", tmp_path / "place").load(JobConfig("job", "mine:App", clocks=1))


def test_a_process_has_the_code_of_its_job_alone(tmp_path: Path, blobs: Blobs) -> None:
    digest = ship_code(blobs, "job", "mine:App", str(written(tmp_path)))
    code = JobCode(blobs, "job", tmp_path / "place")
    before = len(sys.path)
    for _ in range(3):
        code.load(JobConfig("job", "mine:App", clocks=1, code_sha256=digest))
    assert len(sys.path) == before + 1
    with pytest.raises(JobError, match=rf"the controller has {digest[:12]}, and the job wants {'a' * 12}"):
        code.load(JobConfig("job", "mine:App", clocks=1, code_sha256="a" * 64))
    with pytest.raises(JobError, match=rf"the controller has {digest[:12]}, and the job wants no code"):
        code.load(JobConfig("job", "mine:App", clocks=1))
    with pytest.raises(JobError, match="serves job 'job' and has no code of 'other'"):
        code.load(JobConfig("other", "mine:App", clocks=1, code_sha256=digest))
    JobCode(blobs, "none", tmp_path / "place").load(JobConfig("none", "mlr", clocks=1))
