"""Every sweep.yaml is taken, or refused in one true line, before anything is written; never a fault of the program."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proteus_spot.infra.applications.code_files import read_trial_code
from proteus_spot.infra.errors import InputError
from proteus_spot.tasks.sweeps.given_sweep import check_asked
from proteus_spot.tasks.sweeps.import_check import import_failure
from proteus_spot.tasks.sweeps.sweep_checks import check_files, check_import
from proteus_spot.tasks.sweeps.sweep_spec import SweepSpec, read_sweep

TRIAL = """
def train(trial):
    for step in trial.steps():
        trial.report(step, loss=1 / step)


def two(trial, other):
    pass


def defaults(trial, other=1, *rest, named=None):
    pass


async def later(trial):
    pass


class Model:
    pass
"""
GOOD: dict[str, Any] = {
    "sweep": "digits",
    "trial": "my_trial:train",
    "code": "my_trial.py",
    "requirements": "",
    "data": "",
    "space": {"alpha": {"log": [1.0e-5, 1.0e-1], "points": 3}, "penalty": {"choice": ["l1", "l2"]}},
    "sampler": "grid",
    "metric": {"name": "loss", "direction": "minimize"},
    "max_trial_steps": 200,
    "stop": "earlycurve",
    "theta": 0.7,
    "mcnt": 3,
    "predictor": "table",
    "parallel": 8,
    "checkpoint_minutes": 5,
    "markets": {"cpus": "2+", "memory_gib": "4+"},
    "billing": "per-second-first-hour-free",
    "budget_usd": 5.0,
    "deadline": "12h",
    "seed": 0,
    "sweep_id": "",
}
QUICK = settings(
    max_examples=100, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
ODD = st.sampled_from(
    [
        *(None, True, False, 0, -1, 1, 2**63, 10**400, -0.0, 1e308, 1e-320, "", " ", "nan", "1:30", "l1", "mlr", "a/b"),
        *("a:b", "\u0661", "a" * 2000, "../x", "s3://a/b", "https://u:p@h/x", [], {}, [[]], [1, 2], {"a": 1}, {"": {}}),
        *("grid", "tpe", {"log": [1, 2]}, {"int": [3, 1]}, {"choice": []}, {"name": "x", "bound": 1}),
        {"x": {"uniform": [0, 1], "points": 2}},
    ]
)
VALUES = st.recursive(
    ODD | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6) | st.sampled_from(list(GOOD)), inner)
    ),
    max_leaves=5,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A working directory with the file of a trial."""
    directory = tmp_path_factory.mktemp("sweeps")
    (directory / "my_trial.py").write_text(TRIAL)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        yield directory


def load_sweep(path: Path) -> SweepSpec:
    """Read and check a file, as the verbs do."""
    spec = read_sweep(path)
    check_asked(spec, path)
    return spec


def outcome(folder: Path, text: str, load: Callable[[Path], SweepSpec] = load_sweep) -> SweepSpec | str:
    """Return the sweep, or the line that refuses it; nothing else may happen."""
    file = Path("s.yaml")
    file.write_text(text)
    try:
        found: SweepSpec | str = load(file)
    except InputError as error:
        found = str(error)
        assert found.startswith("s.yaml: ")
        assert "\n" not in found
        assert len(found) < 1600
    assert sorted(path.name for path in folder.iterdir()) == ["my_trial.py", "s.yaml"]
    return found


def test_the_file_is_good(folder: Path) -> None:
    spec = outcome(folder, yaml.safe_dump(GOOD))
    assert isinstance(spec, SweepSpec)
    assert spec.trial_count == 6


@QUICK
@given(key=st.sampled_from(list(GOOD)), value=VALUES)
def test_a_changed_value_is_taken_or_refused_by_its_name(folder: Path, key: str, value: Any) -> None:
    found = outcome(folder, json.dumps({**GOOD, key: value}))
    if isinstance(found, str) and not found.partition(": ")[2].startswith("line "):  # YAML's own faults have lines
        assert key in found


@QUICK
@given(
    record=st.dictionaries(st.sampled_from(list(GOOD)) | st.text(max_size=8), VALUES, max_size=6),
    without=st.sets(st.sampled_from(list(GOOD)), max_size=3),
)
def test_any_mapping_is_taken_or_refused(folder: Path, record: dict[str, Any], without: set[str]) -> None:
    outcome(folder, json.dumps({**{k: v for k, v in GOOD.items() if k not in without}, **record}), read_sweep)


@QUICK
@given(
    at=st.integers(0, 600), text=st.text(max_size=4) | st.sampled_from(["\n", ": ", "- ", "{", "]", "&a", "*a", "'"])
)
def test_any_text_is_taken_or_refused(folder: Path, at: int, text: str) -> None:
    good = yaml.safe_dump(GOOD)
    outcome(folder, good[:at] + text.encode("utf-8", "replace").decode() + good[at:], read_sweep)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        (
            {"trial": "my_trial:walk"},
            "code my_trial.py: has no walk of trial my_trial:walk; its functions are defaults, ",
        ),
        ({"trial": "my_trial:two"}, "code my_trial.py: two must take the trial and nothing else; write def two(trial)"),
        ({"trial": "my_trial:later"}, "code my_trial.py: later is not a plain function; write def later(trial)"),
        ({"trial": "my_trial:Model"}, "code my_trial.py: Model is not a plain function; write def Model(trial)"),
        ({"trial": "other:train"}, "code my_trial.py: trial other:train is looked for in module other; name the file"),
        ({"code": "none.py"}, "code none.py: cannot be read: No such file or directory; check the path"),
        ({"code": "my_trial.txt"}, "code my_trial.txt: is no .py file and no wheel"),
        ({"data": "none.csv"}, "data: none.csv is not there; check the path"),
        ({"requirements": "none.txt"}, "requirements: none.txt is not there; check the path"),
        ({"trial": "mlr", "code": ""}, "space.alpha: "),
        ({"trial": "mlr", "code": "", "space": {"n_inputs": {"choice": [1]}}}, "space.n_inputs: the data say it"),
        ({"trial": "mlr", "code": "", "space": {"step": {"choice": [0.1, "a"]}}}, "space.step: "),
        ({"sampler": "BruteForceSampler", "trials": 3}, "sampler BruteForceSampler: "),
    ],
)
def test_what_a_machine_alone_can_see_is_refused_before_anything_is_written(
    folder: Path, changed: dict[str, Any], says: str
) -> None:
    if "Force" in str(changed):
        pytest.importorskip("optuna")
    found = outcome(folder, yaml.safe_dump({**GOOD, **changed}))
    assert isinstance(found, str)
    assert found.startswith(f"s.yaml: {says}")


def test_a_function_with_defaults_and_an_application_are_taken(folder: Path) -> None:
    space = {"step": {"log": [0.01, 1.0], "points": 2}}
    assert isinstance(outcome(folder, yaml.safe_dump({**GOOD, "trial": "my_trial:defaults"})), SweepSpec)
    assert isinstance(outcome(folder, yaml.safe_dump({**GOOD, "trial": "mlr", "code": "", "space": space})), SweepSpec)


def test_a_name_that_cannot_be_printed_is_shown_as_python_writes_it(folder: Path) -> None:
    assert outcome(folder, json.dumps({**GOOD, "\n": 1}), read_sweep) == (
        "s.yaml: '\\n': is not known; fix its name, or leave it out"
    )


@pytest.mark.parametrize(
    ("text", "elsewhere", "why"),
    [
        (
            "import not_installed_here\n",
            False,
            "No module named 'not_installed_here' (my_trial.py, line 1, in <module>)",
        ),
        ("x = y\n", True, "NameError: name 'y' is not defined (my_trial.py, line 1, in <module>)"),
        ("raise RuntimeError('no GPU')\n", False, "RuntimeError: no GPU (my_trial.py, line 1, in <module>)"),
        ("import os; os._exit(3)\n", False, "its import ended the process with exit code 3"),
        ("from os.path import join as train\n", True, None),
        ("train = len\n", True, None),
        ("import functools\ntrain = functools.partial(print, 1, 2)\n", True, None),
        (
            "import functools\ntrain = functools.partial(divmod, 1, 2)\n",
            True,
            "train cannot be called with a trial alone",
        ),
        ("globals()['train'] = 3\ndef __getattr__(name): return 3\n", True, "module my_trial has no function train"),
    ],
)
def test_a_file_that_cannot_be_imported_is_refused_where_that_is_sure(
    tmp_path: Path, text: str, elsewhere: bool, why: str | None
) -> None:
    code = tmp_path / "my_trial.py"
    code.write_text(text if "train" in text else f"{text}def train(trial): pass\n")
    spec = SweepSpec.model_validate(GOOD | {"code": str(code)})
    if why is None:
        check_import(spec, is_here=True)
        return
    with pytest.raises(InputError) as refused:
        check_import(spec, "sweep.yaml: ", is_here=True)
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)
    if elsewhere:
        with pytest.raises(InputError):
            check_import(spec, is_here=False)
    else:
        check_import(spec, is_here=False)


def test_an_import_that_takes_long_or_needs_packages_is_left_to_the_first_trial(tmp_path: Path) -> None:
    code = tmp_path / "my_trial.py"
    code.write_text("import time; time.sleep(60)\ndef train(trial): pass\n")
    assert import_failure("my_trial:train", read_trial_code("my_trial:train", str(code)), 0.5) is None
    code.write_text("import not_installed_here\ndef train(trial): pass\n")
    check_import(SweepSpec.model_validate(GOOD | {"code": str(code), "requirements": "r.txt"}), is_here=True)


@pytest.mark.parametrize("field", ["data", "requirements"])
def test_a_directory_in_place_of_a_file_is_named(tmp_path: Path, field: str) -> None:
    spec = SweepSpec.model_validate(GOOD | {field: str(tmp_path)})
    with pytest.raises(InputError, match=f"s: {field}: {tmp_path} is a directory; give a file"):
        check_files(spec, "s: ")
