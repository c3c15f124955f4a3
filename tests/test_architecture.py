"""The rules of the house that no linter knows: imports, purity, docstrings, and what may not stand in a file."""

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("bidding", "psengine", "nets", "infra", "reports", "studies", "tasks", "flows")
CORES = ("bidding", "psengine")
#: An exception to a rule carries this on its line, with the reason.
MARK = "# impure-ok:"
#: Calls that read a clock.
CLOCKS = {
    ("time", name)
    for name in ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "sleep")
} | {("datetime", "now"), ("datetime", "utcnow"), ("datetime", "today"), ("date", "today")}
#: Modules that reach out of a process, or into its environment.
IMPURE = frozenset(
    [
        "asyncio",
        "concurrent",
        "fcntl",
        "http",
        "importlib",
        "io",
        "logging",
        "multiprocessing",
        "os",
        "pathlib",
        "pickle",
        "random",
        "secrets",
        "shutil",
        "signal",
        "socket",
        "subprocess",
        "sys",
        "tempfile",
        "threading",
        "time",
        "urllib",
        "uuid",
    ]
)
#: What decides and moves nothing. The rest of psengine is a node's part, or the shell.
PURE = (
    "bidding",
    *(
        f"psengine/{name}"
        for name in ("controller", "drivers", "membership", "protocol", "scheduling", "tables", "telemetry", "tiers")
    ),
)
#: They take tenths of a second of every process that imports them: the command, each flow, each node.
SLOW_TO_IMPORT = frozenset(["scipy", "sklearn", "pandas"])
MUTABLE_CALLS = {"list", "dict", "set", "defaultdict", "deque", "OrderedDict", "Counter", "bytearray"}

Rule = Callable[[ast.Module], Iterator[tuple[int, str]]]


def _sources(*packages: str) -> list[Path]:
    return [path for package in packages for path in sorted((ROOT / package).rglob("*.py"))]


def _breaches(rule: Rule, text: str) -> list[str]:
    lines = text.splitlines()
    return [f"{line}: {what}" for line, what in rule(ast.parse(text)) if MARK not in lines[line - 1]]


def _name(node: ast.expr) -> str:
    """The last part of a dotted name."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


# -- the rules ------------------------------------------------------------------------------------------------------


def unseeded_generators(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Random sources that differ from run to run, or that a caller cannot see."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = _name(node.func)
        unseeded = not node.args and not node.keywords
        if name in ("default_rng", "Random", "SeedSequence", "PCG64", "RandomState") and unseeded:
            yield node.lineno, f"{name}() without a seed"
        dotted = ast.unparse(node.func)
        if re.match(r"(np|numpy)\.random\.(?!default_rng|Generator|SeedSequence|PCG64)", dotted):
            yield node.lineno, f"{dotted} uses the generator of the process"


def module_level_containers(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """State that outlives a call."""
    for node in tree.body:
        if isinstance(node, ast.Assign):
            names, value = [_name(target) for target in node.targets], node.value
        elif isinstance(node, ast.AnnAssign):
            names, value = [_name(node.target)], node.value
        else:
            continue
        literal = isinstance(value, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp)
        called = isinstance(value, ast.Call) and _name(value.func) in MUTABLE_CALLS
        if (literal or called) and names != ["__all__"]:
            yield node.lineno, f"{names} is a container that can be changed"


def iterated_sets(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Orders that depend on the hash seed."""
    for node in ast.walk(tree):
        for loop in (
            [node.iter]
            if isinstance(node, ast.For | ast.AsyncFor)
            else [g.iter for g in getattr(node, "generators", ())]
        ):
            if isinstance(loop, ast.Set | ast.SetComp) or (
                isinstance(loop, ast.Call) and _name(loop.func) in ("set", "frozenset")
            ):
                yield loop.lineno, "iterates over a set"
        if isinstance(node, ast.Call) and _name(node.func) in ("list", "tuple", "enumerate", "next", "iter"):
            for argument in node.args[:1]:
                if isinstance(argument, ast.Set | ast.SetComp) or (
                    isinstance(argument, ast.Call) and _name(argument.func) in ("set", "frozenset")
                ):
                    yield node.lineno, "takes a set in whatever order it has"


def clock_reads(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Time that nobody handed in."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            place = _name(node.func.value)
            if (place, node.func.attr) in CLOCKS:
                yield node.lineno, f"{place}.{node.func.attr}() reads the clock"
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            yield node.lineno, "imports from time"


def impure_imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Ways out of the values that were handed in: files, processes, threads, the network, the environment."""
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        for name in names:
            if name.partition(".")[0] in IMPURE:
                yield node.lineno, f"imports {name}"
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("open", "print", "input")
        ):
            yield node.lineno, f"calls {node.func.id}"


def slow_imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Libraries that take long to import, before they are needed."""
    for node in tree.body:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        for name in names:
            if name.partition(".")[0] in SLOW_TO_IMPORT:
                yield node.lineno, f"imports {name} where the module is imported, not where it is used"


def missing_docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Public modules, classes and functions that say nothing of themselves."""
    if not ast.get_docstring(tree) and tree.body:
        yield 1, "the module"
    stack: list[ast.Module | ast.ClassDef] = [tree]
    while stack:
        for node in stack.pop().body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name[0] != "_":
                if not ast.get_docstring(node):
                    yield node.lineno, node.name
                if isinstance(node, ast.ClassDef):
                    stack.append(node)


RULES: dict[Rule, tuple[tuple[str, ...], str, str]] = {
    unseeded_generators: (PACKAGES, "rng = np.random.default_rng()", "rng = np.random.default_rng(seed)"),
    module_level_containers: (CORES, "seen = {}", "LIMITS = MappingProxyType({})"),
    iterated_sets: (CORES, "for x in set(names): print(x)", "for x in sorted(set(names)): print(x)"),
    clock_reads: (PACKAGES, "now_s = time.monotonic()", "now_s = clock.now_s()"),
    impure_imports: (PURE, "from pathlib import Path", "from dataclasses import dataclass"),
    slow_imports: (PACKAGES, "from scipy.optimize import root", "def f():\n    from scipy.optimize import root"),
    missing_docstrings: (PACKAGES, "def f(): ...", '"""M."""\ndef f():\n    """F."""'),
}
#: The one module that reads the machine's clock for the rest, and the shells that measure how long something took.
CLOCK_READERS = {"infra/clock.py", "psengine/shell/controller_shell.py", "psengine/worker/batch_runner.py"}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_rule_is_kept(rule: Rule) -> None:
    breaches = [
        f"{path.relative_to(ROOT)}:{breach}"
        for path in _sources(*RULES[rule][0])
        if not (rule is clock_reads and path.relative_to(ROOT).as_posix() in CLOCK_READERS)
        for breach in _breaches(rule, path.read_text())
    ]
    assert not breaches, "\n".join(breaches)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_rule_sees_a_breach_and_lets_the_rest_be(rule: Rule) -> None:
    _, bad, good = RULES[rule]
    assert _breaches(rule, bad)
    assert not _breaches(rule, good)
    assert not _breaches(rule, f"{bad}  {MARK} a test") or "\n" in bad


def test_no_module_says_of_itself_that_it_is_pure() -> None:
    """The packages say it, and `impure_imports` checks it."""
    said = re.compile(r"\bPure\.\s*$", re.MULTILINE)
    texts = {path: ast.get_docstring(ast.parse(path.read_text())) or "" for path in _sources(*PACKAGES)}
    assert not [path for path, text in texts.items() if said.search(text)]
    assert said.search("What is done. Pure.")


def test_there_are_sources_to_look_at() -> None:
    for package in PACKAGES:
        assert len(_sources(package)) > 5, package


# -- packages -------------------------------------------------------------------------------------------------------


@pytest.mark.storm  # `make lint`, of which `make test` is a part, runs the same
def test_import_contracts_hold() -> None:
    done = subprocess.run(
        [str(Path(sys.executable).with_name("lint-imports"))], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_are_ours(package: str) -> None:
    found = importlib.import_module(f"proteus_spot.{package}").__file__
    assert found is not None
    assert Path(found).resolve().parent == ROOT / package


def test_our_modules_have_one_name() -> None:
    """From the root of the repository, the folders can be imported by themselves, too: a second time."""
    former = re.compile(rf"^\s*(from|import) ({'|'.join((*PACKAGES, 'benchmarks'))})\b", re.MULTILINE)
    assert former.search("    from tasks.runtime import unwrap")
    named = [path for path in _sources(*PACKAGES, "benchmarks", "tests") if former.search(path.read_text())]
    assert [path.relative_to(ROOT).as_posix() for path in named] == ["tests/e2e/test_installed_package.py"]


def test_nothing_imports_the_tests() -> None:
    for path in _sources(*PACKAGES):
        assert not re.search(r"^\s*(from|import) tests\b", path.read_text(), re.MULTILINE), path


def test_every_package_is_shipped() -> None:
    import tomllib

    from setuptools import find_packages

    found = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]["find"]
    folders = {path.parent.relative_to(ROOT) for path in _sources(*PACKAGES, "benchmarks")}
    there = {"proteus_spot", *(".".join(["proteus_spot", *folder.parts]) for folder in folders)}
    assert set(find_packages(str(ROOT), include=found["include"])) == there


# -- folders --------------------------------------------------------------------------------------------------------

#: Modules in a folder, beside its `__init__`.
MOST_MODULES = 20
#: Holds a module for each change of the schema, for ever.
UNLIMITED = "infra/state/migrations/versions"
SHIPPED = (*PACKAGES, "benchmarks")


def _folders() -> list[Path]:
    return sorted({path.parent for path in _sources(*SHIPPED)})


def overfull(modules: dict[str, int]) -> dict[str, int]:
    return {folder: count for folder, count in modules.items() if count > MOST_MODULES}


def unlisted(text: str, modules: set[str]) -> set[str]:
    """Modules that have no line of their own in the docstring of their package: a name and what it holds."""
    lines = (ast.get_docstring(ast.parse(text)) or "").splitlines()
    return modules - {match[1] for line in lines if (match := re.match(r"\s*([a-z0-9_]+)/? {2,}\S", line))}


def same_names(classes: dict[str, list[str]]) -> dict[str, list[str]]:
    """Public classes of one name in several modules."""
    places: dict[str, list[str]] = {}
    for module, names in classes.items():
        for name in names:
            places.setdefault(name, []).append(module)
    return {name: found for name, found in places.items() if len(found) > 1}


def test_no_folder_is_overfull() -> None:
    counts = {folder.relative_to(ROOT).as_posix(): len(list(folder.glob("[!_]*.py"))) for folder in _folders()}
    del counts[UNLIMITED]
    assert not overfull(counts)
    assert overfull({"a": MOST_MODULES + 1, "b": MOST_MODULES}) == {"a": MOST_MODULES + 1}


def test_every_package_has_a_line_for_each_module() -> None:
    missing = {}
    for folder in _folders():
        inner = {path.name for path in folder.iterdir() if (path / "__init__.py").exists()}
        modules = {path.stem for path in folder.glob("[!_]*.py")} | inner
        if found := unlisted((folder / "__init__.py").read_text(), modules):
            missing[folder.relative_to(ROOT).as_posix()] = sorted(found)
    assert not missing
    assert unlisted('"""Rooms.\n\n    kitchen  cooks\n    hall/    leads on\n"""', {"kitchen", "hall", "attic"}) == {
        "attic"
    }


def imports_of(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """The modules of ours that each module imports, wherever in it."""
    found: dict[str, set[str]] = {module: set() for module in sources}
    for module, text in sources.items():
        for node in ast.walk(ast.parse(text)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                inner = [f"{node.module}.{alias.name}" for alias in node.names]
                names = [name if name in sources else node.module for name in inner]
            found[module].update(name for name in names if name in sources and name != module)
    return found


def test_no_circle_of_files() -> None:
    sources = {
        ".".join(["proteus_spot", *path.relative_to(ROOT).with_suffix("").parts]).removesuffix(
            ".__init__"
        ): path.read_text()
        for path in _sources(*SHIPPED)
    }
    TopologicalSorter(imports_of(sources)).prepare()  # a CycleError names the modules
    with pytest.raises(CycleError):
        TopologicalSorter(imports_of({"a": "from b import f", "b": "def f():\n    import a"})).prepare()


def test_no_two_public_classes_have_one_name() -> None:
    classes = {
        path.relative_to(ROOT).as_posix(): [
            node.name
            for node in ast.parse(path.read_text()).body
            if isinstance(node, ast.ClassDef) and node.name[0] != "_"
        ]
        for path in _sources(*SHIPPED)
    }
    assert not same_names(classes)
    assert same_names({"a": ["X", "Y"], "b": ["X"]}) == {"X": ["a", "b"]}


# -- what may not stand in a file -----------------------------------------------------------------------------------


def _tracked() -> list[Path]:
    """The files of the project: tracked ones and those that would be."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


#: Hosts that software comes from, and folders of somebody's machine. Written so that this file has none itself.
STRANGE = (
    re.compile(
        r"py" + r"pi\.org|python" + r"hosted\.org|conda\." + r"anaconda|artifact" + r"ory|nexus" + r"\.|dev" + "pi",
        re.IGNORECASE,
    ),
    re.compile(r"(?<![\w.])/(home|Users|root|work|mnt|private)" + r"/[\w.]"),
    re.compile(r"[A-Z]:" + r"\\\\?Users"),
)


def strange(text: str) -> list[str]:
    return [match[0] for pattern in STRANGE for match in pattern.finditer(text)]


def test_no_file_names_a_registry_or_a_path_of_a_machine() -> None:
    found = {}
    for path in _tracked():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue  # a picture
        if said := strange(text):
            found[str(path.relative_to(ROOT))] = said
    assert not found


def test_strange_words_are_seen() -> None:
    assert strange("https://py" + "pi.org/simple")
    assert strange("see /ho" + "me/ann/file")
    assert not strange("https://docs.aws.amazon.com/x and dir/home/x and /tmp/x")
