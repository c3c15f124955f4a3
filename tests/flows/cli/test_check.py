"""The verb `proteus check`, as a user runs it."""

import json
from pathlib import Path

import pytest

from tests.support.cli_process import inside, proteus

APP = """
import numpy as np
from proteus_spot import TableSpec, Work

class App:
    def __init__(self, n_inputs, step=0.1):
        self.n_inputs, self.step = n_inputs, step
    def tables(self):
        return (TableSpec("weights", self.n_inputs, 1),)
    def initial(self, table, rows, rng):
        return np.zeros((rows[1] - rows[0], 1))
    def prepare(self, arrays):
        return arrays["x"]
    def run(self, data, params, clock):
        first = next(iter({"one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"}))
        mean = data.mean(axis=0, dtype=np.float32)[:, None]
        update = np.float32(self.step) * (mean - params["weights"])
        return Work({"weights": update + len(first) * hash(first) % 7}, 0.0, len(data))
    def evaluate(self, params, heldout):
        return {"sum": float(params["weights"].sum())}
"""


@pytest.mark.e2e
def test_what_differs_by_process_is_found_and_nothing_stays(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(APP)
    done = proteus("check", "mine:App", "--json", "found.json", cwd=tmp_path, home=tmp_path / "home")
    assert done.code == 1, done.err
    assert done.err == "proteus: check mine:App: 1 fault; fix what the lines above name\n"
    assert done.out.startswith("mine:App: run, partition 0, clock 1: other bits in another process; keep nothing")
    (fault,) = json.loads((tmp_path / "found.json").read_text())["faults"]
    assert done.out == f"mine:App: {fault}\n"
    assert not list((tmp_path / "home").glob("proteus-*"))


@pytest.mark.e2e
def test_an_application_with_executors_and_a_driver_is_checked_too(tmp_path: Path) -> None:
    lasso = Path(__file__).parents[3] / "docs" / "examples" / "lasso.py"
    done = proteus(
        "check", "lasso:Lasso", "--code", lasso, "--param", "alpha=0.1", cwd=tmp_path, home=tmp_path / "home"
    )
    assert (done.code, done.err) == (0, "")
    assert done.out == "lasso:Lasso: no fault found; 4 partitions gave the same bits twice, in two processes\n"


def test_bad_input_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(APP.replace("evaluate", "measure"))
    for options, line in (
        (["mlr", "--param", "step=fast"], "proteus: --param: app 'mlr' does not take these app_params: step is 'fast'"),
        (["mine:App"], f"proteus: code {tmp_path}/mine.py: App has no method evaluate(); an application needs it"),
        (["other:App"], "proteus: APP other:App: there is no other.py here, and other is not installed; give --code"),
        (["mlr", "--data", "none.csv"], "proteus: "),
        (["mlr", "--partitions", "1"], "proteus: Invalid value for '--partitions'"),
    ):
        done = inside("check", *options, cwd=tmp_path, home=tmp_path / "home")
        assert (done.code, done.out) == (2, "")
        assert done.err.startswith(line)
        assert done.err.count("\n") == 1
