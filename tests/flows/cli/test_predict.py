"""`proteus predict`: rows, labels and figures; a user's own application; what does not fit is refused in one line."""

import csv
import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from proteus_spot.flows.cli.main import cli
from proteus_spot.infra.applications.code_files import read_code
from proteus_spot.infra.datasets.formats.reading import Reading
from proteus_spot.infra.errors import InputError, ProteusError
from proteus_spot.psengine.apps.base import App
from proteus_spot.studies.prediction.predictions import predict
from tests.support.trained_models import trained_model

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "kmeans.py"
CENTRES = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]])
NAMES = ("rose", "lily, white", 'the "iris"')


def flowers(path: Path, rows: int = 60, seed: int = 0) -> str:
    rng = np.random.default_rng(seed)
    with path.open("w", newline="") as file:
        lines = csv.writer(file)
        for row in range(rows):
            lines.writerow([*(CENTRES[row % 3] + rng.normal(0, 0.3, 2)).round(3), NAMES[row % 3]])
    return str(path)


@pytest.fixture
def model(tmp_path: Path) -> str:
    return trained_model(tmp_path / "blobs", flowers(tmp_path / "a.csv"), "mlr", step=0.5)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["predict", *arguments])


def refused(says: str, *arguments: str) -> None:
    result = run(*arguments)
    assert isinstance(result.exception, InputError), result
    assert says in str(result.exception)
    assert "\n" not in str(result.exception)
    assert result.output == ""


def test_rows_get_their_labels_and_the_figures_say_how_many_are_right(tmp_path: Path, model: str) -> None:
    data = flowers(tmp_path / "new.csv", rows=30, seed=1)
    out = tmp_path / "out.csv"
    result = run(model, "--data", data, "--out", str(out))
    assert (result.exit_code, result.output) == (0, f"30 rows, 1.0000 of them as their labels say: {out}\n")
    with out.open(newline="") as file:
        assert list(csv.reader(file)) == [["row", "class"], *([str(row), NAMES[row % 3]] for row in range(30))]
    figures = json.loads(run(model, "--data", data, "--out", str(out), "--json", "-").output)
    assert figures == {
        "model": f"file://{model}",
        "app": "mlr",
        "data": data,
        "rows": 30,
        "predicts": "class",
        "accuracy": 1.0,
        "rmse": None,
    }
    assert run(model, "--data", data, "--out", "-").output == out.read_text()


def test_numbers_come_back_as_the_numbers_they_were(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text("".join(f"{i % 2},{i % 2 - 1},{7 if i % 2 else 40}\n" for i in range(20)))
    found = predict(trained_model(tmp_path / "m", str(tmp_path / "a.csv"), "mlr"), str(tmp_path / "b.csv"))
    assert found.as_csv().decode().splitlines()[:3] == ["row,class", "0,40", "1,7"]
    assert found.accuracy == 1.0
    wrong = (tmp_path / "b.csv").read_text().replace(",40\n", ",7\n", 5)
    (tmp_path / "b.csv").write_text(wrong)
    assert predict(str(tmp_path / "m/jobs/job/model"), str(tmp_path / "b.csv")).accuracy == 0.75


def test_rows_without_a_label_get_one_and_nothing_is_said_of_how_many_are_right(tmp_path: Path, model: str) -> None:
    labelled = flowers(tmp_path / "new.csv", rows=30, seed=1)
    with Path(labelled).open(newline="") as file:
        inputs = [row[:2] for row in csv.reader(file)]
    (tmp_path / "plain.csv").write_text("".join(f"{x},{y}\n" for x, y in inputs))
    (tmp_path / "named.tsv").write_text("width\theight\n" + "".join(f"{x}\t{y}\n" for x, y in inputs))
    np.savez(tmp_path / "plain.npz", x=np.array(inputs, float))
    wanted = run(model, "--data", labelled, "--out", "-").output
    for name in ("plain.csv", "named.tsv", "plain.npz"):
        out = tmp_path / "out.csv"
        result = run(model, "--data", str(tmp_path / name), "--out", str(out))
        assert (result.output.splitlines()[-1], out.read_bytes().decode()) == (f"30 rows: {out}", wanted)
        said = "data: the model does not know the names of its inputs: columns are taken by their places\n"
        assert result.output.startswith(said) == (name == "named.tsv")
    assert predict(model, str(tmp_path / "plain.csv")).figures()["accuracy"] is None


def test_a_label_that_the_model_does_not_know_is_refused_or_passed_over(tmp_path: Path, model: str) -> None:
    new = tmp_path / "new.csv"
    classes = "'lily, white', 'rose', 'the \"iris\"'"
    for labels, says in (
        (("rose", "rose", "tulip"), f"line 3: label 'tulip' is none of the model's 3 classes ({classes})"),
        ((0, 1, 2), "line 1: label '0' is none of the model's 3 classes"),
        ((0.5, 1, 2), "line 1: label '0.5' is none of the model's 3 classes"),
    ):
        new.write_text("".join(f"{x},{y},{label}\n" for (x, y), label in zip(CENTRES, labels, strict=True)))
        refused(f"new.csv: {says}", model, "--data", str(new), "--out", "-")
        found = predict(model, str(new), labels=False)
        assert (found.values.tolist(), found.accuracy) == (list(NAMES), None)
    many = tmp_path / "many.csv"
    many.write_text("".join(f"{i % 12},{i},{i % 12}\n" for i in range(48)))
    new.write_text("1,2,12\n")
    refused("label 12 is none of the model's 12 classes (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, …); fix it, or have labels "
            "passed over by --no-labels", trained_model(tmp_path / "m", str(many), "mlr"), "--data", str(new),
            "--out", "-")  # fmt: skip


def test_a_sparse_file_always_has_labels_and_they_may_be_passed_over(tmp_path: Path) -> None:
    rows = [f"{7 + i % 2} {1 + i % 2}:1 {3 + i % 7}:0.5" for i in range(40)]
    (tmp_path / "a.svm").write_text("\n".join(rows))
    model = trained_model(tmp_path / "blobs", str(tmp_path / "a.svm"), "mlr")
    (tmp_path / "new.svm").write_text("\n".join(f"0 {row[2:]}" for row in rows[:4]))
    refused("new.svm: line 1: label 0 is none of the model's 2 classes (7, 8)", model, "--data",
            str(tmp_path / "new.svm"), "--out", "-")  # fmt: skip
    assert run(model, "--data", str(tmp_path / "new.svm"), "--out", "-", "--no-labels").output.splitlines() == [
        "row,class",
        "0,7",
        "1,8",
        "2,7",
        "3,8",
    ]


def test_a_sparse_file_may_lack_the_last_columns(tmp_path: Path) -> None:
    rows = [f"{i % 2} {1 + i % 2}:1 {3 + i % 7}:0.5" for i in range(40)]
    (tmp_path / "a.svm").write_text("\n".join([*rows, "1 2:1 400:1", "1 2:1 400:1"]))
    model = trained_model(tmp_path / "blobs", str(tmp_path / "a.svm"), "mlr")
    (tmp_path / "dense.svm").write_text("\n".join(rows[:6]))
    (tmp_path / "sparse.svm").write_text("\n".join([*rows[:6], "0 1:1 300:1"]))
    (tmp_path / "wide.svm").write_text(
        "# not in the training data: 401 and 2000000000\n1 2:1 401:1\n0 1:1 401:3 2000000000:1"
    )
    assert predict(model, str(tmp_path / "dense.svm")).values.tolist() == [0, 1, 0, 1, 0, 1]
    assert predict(model, str(tmp_path / "sparse.svm")).values.tolist() == [0, 1, 0, 1, 0, 1, 0]
    wide = predict(model, str(tmp_path / "wide.svm"))
    assert wide.values.tolist() == [1, 0]
    assert wide.notes == (
        (
            "2 features that the model was not trained on, of index 401 or more, passed over: "
            "index 401 in line 2 is the first"
        ),
    )
    result = run(model, "--data", str(tmp_path / "wide.svm"), "--out", str(tmp_path / "out.csv"))
    assert result.stderr == f"data: {wide.notes[0]}\n"
    assert result.stdout.startswith("2 rows, 1.0000 of them")


def test_features_are_counted_as_in_the_training_data(tmp_path: Path) -> None:
    """Which of the two ways a file counts is seen in it only where index 0 occurs."""
    from_0 = [f"{i % 2} {i % 2}:1 2:0.1" for i in range(40)]  # feature 0 or 1 says the class
    from_1 = [f"{i % 2} {1 + i % 2}:1 3:0.1" for i in range(40)]
    for name, rows in (("0", from_0), ("1", from_1)):
        (tmp_path / f"{name}.svm").write_text("\n".join(rows))
        model = trained_model(tmp_path / name, str(tmp_path / f"{name}.svm"), "mlr", step=1.0)
        (tmp_path / "new.svm").write_text(rows[1])  # without feature 0, as the file alone would be read otherwise
        assert predict(model, str(tmp_path / "new.svm")).values.tolist() == [1]
    (tmp_path / "new.svm").write_text("\n".join(["# of another tool", *from_0]))
    refused("new.svm: line 2: index 0, and the training data count from 1", model, "--data",
            str(tmp_path / "new.svm"), "--out", "-")  # fmt: skip


def test_bad_input_is_refused(tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    narrow, bad = tmp_path / "narrow.csv", tmp_path / "bad.csv"
    narrow.write_text("1,rose\n2,rose\n")
    bad.write_text("1,2,rose\n1,x,rose\n")
    data = str(tmp_path / "a.csv")
    refused("of its 2 columns one is taken for the label", model, "--data", str(narrow), "--out", "-")
    refused("bad.csv: line 2: column 2 is 'x'; write a number", model, "--data", str(bad), "--out", "-")
    narrow.write_text("x,y\n1,2\n")
    refused(
        "of its 2 columns one is taken for the label", model, "--data", str(narrow), "--out", "-"
    )  # a header names a label
    refused("there is no model", str(tmp_path / "none"), "--data", data, "--out", "-")
    refused("is a model of app mlr, not of kmeans:KMeans", model, "--data", data, "--out", "-",
            "kmeans:KMeans", "--code", str(EXAMPLE))  # fmt: skip
    refused("--out none/a.csv: there is no directory none", model, "--data", data, "--out", "none/a.csv")
    refused("--json -: the predictions go to standard output", model, "--data", data, "--out", "-", "--json", "-")
    refused("name its module:Class as APP", model, "--data", data, "--out", "-", "--code", "a.py")
    refused("--data: name what to predict from, or give --topics N of a model of lda", model, "--out", "-")
    refused("--data: name what to predict", model, "--out", "-", "--data", data, "--topics", "3")
    refused("--vocabulary a.txt: names the words of topics", model, "--out", "-", "--data", data, "--vocabulary",
            "a.txt")  # fmt: skip
    refused(
        "--topics: does not use --label, --no-labels and --code", model, "--out", "-", "--topics", "3", "--no-labels"
    )
    refused("is a model of app mlr, which has none; name a model of lda", model, "--out", "-", "--topics", "3")
    assert run(model, "--data", data).exit_code == 2


def own(path: Path, name: str) -> type[App]:
    """The class of a file that is not on the path of Python, and does not come to be."""
    spec = importlib.util.spec_from_file_location("elsewhere", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: type[App] = getattr(module, name)
    return found


def trained_by(tmp_path: Path, code: Path, app: str, **params: Any) -> str:
    made = own(code, app.partition(":")[2])
    data = flowers(tmp_path / "a.csv")
    size = {"n_inputs": 2, "n_examples": 48}
    return trained_model(
        tmp_path / "blobs",
        data,
        app,
        made=made(**size, **params),
        code_sha256=read_code(app, str(code)).sha256,
        **params,
    )


@pytest.fixture
def own_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a test imports as `mine` is forgotten after it."""
    import sys

    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "mine", None)
    monkeypatch.delitem(sys.modules, "mine")


@pytest.mark.usefixtures("own_modules")
def test_ones_own_application_predicts_with_the_code_it_was_trained_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(EXAMPLE.read_text())
    model = trained_by(tmp_path, tmp_path / "mine.py", "mine:KMeans", k=3, spread=4.0)
    data = ("--data", str(tmp_path / "a.csv"), "--out", "-")
    refused("is a model of app mine:KMeans; to run its code name mine:KMeans after the model", model, *data)
    other = tmp_path / "other" / "mine.py"
    other.parent.mkdir()
    other.write_text(EXAMPLE.read_text() + "# edited\n")
    refused("was trained by", model, *data, "mine:KMeans", "--code", str(other))
    monkeypatch.chdir(tmp_path)
    lines = run(model, *data, "mine:KMeans").output.splitlines()
    assert lines[0] == "row,cluster"
    clusters = [int(line.partition(",")[2]) for line in lines[1:]]
    assert len(clusters) == 60
    assert all(len({clusters[row] for row in range(first, 60, 3)}) == 1 for first in range(3))


RAW = """
import numpy as np
from proteus_spot.psengine.apps.base import Work
from proteus_spot.psengine.config import TableSpec

class Odd:
    {predicts}
    def __init__(self): pass
    def tables(self): return (TableSpec("t", 1, 1),)
    def initial(self, table, rows, rng): return np.zeros((1, 1))
    def prepare(self, arrays): return len(arrays["y"])
    def run(self, data, params, clock): return Work({{}}, 0.0, data)
    def evaluate(self, params, heldout): return {{}}
"""


@pytest.mark.usefixtures("own_modules")
@pytest.mark.parametrize(
    ("predicts", "error", "says"),
    [
        ("", InputError, "app mine:Odd predicts nothing; it has no method predict"),
        ("def predict(self, p, a): return 0", InputError, "predicts nothing; it has no attribute predicts"),
        ("predicts = 'x'; predict = lambda self, p, a: np.zeros(3)", ProteusError, r"shape \(3,\) for 60 examples"),
        ("predicts = 'x'; predict = lambda self, p, a: a['z']", ProteusError, "its predict failed: KeyError: 'z'"),
        ("predicts = 'x'; predict = lambda self, p, a: int('a')", InputError, r"a\.csv: does not fit the model"),
    ],
)
def test_an_application_that_cannot_predict_is_told(
    tmp_path: Path, predicts: str, error: type[ProteusError], says: str
) -> None:
    code = tmp_path / "mine.py"
    code.write_text(RAW.format(predicts=predicts))
    made = own(code, "Odd")()  # type: ignore[call-arg]
    model = trained_model(
        tmp_path / "b", flowers(tmp_path / "a.csv"), "mine:Odd", made=made,
        code_sha256=read_code("mine:Odd", str(code)).sha256,
    )  # fmt: skip
    with pytest.raises(error, match=says) as caught:
        predict(model, str(tmp_path / "a.csv"), "mine:Odd", str(code))
    assert type(caught.value) is error


def test_the_digits_are_told_as_well_as_evaluated(tmp_path: Path) -> None:
    model = trained_model(tmp_path / "blobs", "digits", "mlr", clocks=20)
    found = predict(model, "digits")
    assert found.accuracy is not None
    assert found.accuracy > 0.8


def test_kmeans_predicts_on_the_file_that_it_was_trained_on(tmp_path: Path) -> None:
    """Three blobs that only the last column tells apart."""
    rng = np.random.default_rng(0)
    blobs = rng.integers(0, 3, 90)
    points = np.column_stack([rng.standard_normal(90), 10 * blobs + 0.1 * rng.standard_normal(90)])
    data = tmp_path / "points.csv"
    for header in ("", "x,y\n", "V1,V2\n"):
        data.write_text(header + "".join(f"{x:.4f},{y:.4f}\n" for x, y in points))
        model = trained_model(tmp_path / f"blobs{len(header)}", str(data), "kmeans", clocks=8, k=3)
        clusters = predict(model, str(data)).values
        pairs = set(zip(blobs.tolist(), clusters.tolist(), strict=True))
        assert len(pairs) == len(set(clusters.tolist())) == 3
    data.write_text("".join(f"{x:.4f},{y:.4f},{blob}\n" for (x, y), blob in zip(points, blobs, strict=True)))
    refused("points.csv: has 3 features, and the model", model, "--data", str(data), "--out", "-")
    data.write_text("V1,V2,class\n" + data.read_text())
    found = predict(model, str(data))
    assert (found.values == clusters).all()
    assert found.rmse is None, "the number of a cluster is not an estimate of a label"


@pytest.mark.parametrize("app", ["mlr", "kmeans"])
def test_columns_are_taken_by_the_names_that_the_model_was_trained_on(tmp_path: Path, app: str) -> None:
    rng = np.random.default_rng(0)
    kinds = np.arange(60) % 3
    columns = {"sl": 8.0 * kinds + rng.random(60), "sw": 8.0 * (kinds == 1) + rng.random(60), "kind": kinds + 0.0}

    def write(name: str, *names: str) -> str:
        rows = zip(*(columns[each] for each in names), strict=True)
        (tmp_path / name).write_text(",".join(names) + "\n" + "".join(",".join(map(str, row)) + "\n" for row in rows))
        return str(tmp_path / name)

    source = write("a.csv", "sl", "sw", *(["kind"] if app == "mlr" else []))
    model = trained_model(tmp_path / "blobs", source, app, **({"step": 0.1} if app == "mlr" else {"k": 3}))
    values = predict(model, source).values
    other = predict(model, write("b.csv", "sw", "sl"))
    assert (other.values == values).all()
    assert other.notes == ("the columns are in another order than in the training data, and taken by their names",)
    refused("b.csv: line 1: lacks 'sl', which", model, "--data", write("b.csv", "sw", "kind"), "--out", "-")
    if app == "mlr":
        known = predict(model, write("c.csv", "kind", "sw", "sl"))
        assert known.accuracy == 1
    else:
        refused("c.csv: line 1: 'kind' is none", model, "--data", write("c.csv", "sl", "sw", "kind"), "--out", "-")
        assert (predict(model, str(tmp_path / "c.csv"), label="kind").values == values).all()
    (tmp_path / "d.csv").write_text((tmp_path / "a.csv").read_text().partition("\n")[2])
    by_place = predict(model, str(tmp_path / "d.csv"))
    assert (by_place.values == values).all()
    assert by_place.notes == ("no header: columns are taken by their places, 'sl', 'sw'",)


def test_empty_cells_are_filled_in_as_in_training_or_refused(tmp_path: Path) -> None:
    rows = "".join(f"{row % 2},{'' if row == 5 else row % 2 * 9 + row / 50},{row % 2}\n" for row in range(40))
    (tmp_path / "a.csv").write_text("a,b,y\n" + rows)
    new = tmp_path / "new.csv"
    new.write_text("a,b\n1,\n1,9\n")
    filled = trained_model(tmp_path / "mean", str(tmp_path / "a.csv"), "mlr", how=Reading(empty="mean"), step=0.1)
    assert predict(filled, str(new)).notes == ("1 empty cells hold the mean of their columns in the training data",)
    dropped = trained_model(tmp_path / "drop", str(tmp_path / "a.csv"), "mlr", how=Reading(empty="drop"), step=0.1)
    says = "new.csv: line 2: column 2 ('b') has no value; 1 cell has none: fill them, or leave the rows out"
    refused(says, dropped, "--data", str(new), "--out", "-")


def test_an_index_of_rows_is_left_out_of_data_to_predict_from(tmp_path: Path) -> None:
    rows = [f"{x + i % 3 / 10},{y},{name}" for i in range(4) for (x, y), name in zip(CENTRES, "abc", strict=True)]
    for name, start in (("a.csv", 0), ("new.csv", 1000)):
        (tmp_path / name).write_text(",x,z,class\n" + "".join(f"{start + i},{row}\n" for i, row in enumerate(rows)))
    model = trained_model(tmp_path / "blobs", str(tmp_path / "a.csv"), "mlr")
    found = predict(model, str(tmp_path / "new.csv"))
    assert found.accuracy == 1
    assert found.notes == ("column 1 has no name: taken for an index of rows and left out",)
    (tmp_path / "bare.csv").write_text("x,z\n" + "".join(f"{row.rpartition(',')[0]}\n" for row in rows))
    assert (predict(model, str(tmp_path / "bare.csv")).values == found.values).all()


def test_kmeans_tells_clusters_and_not_labels(tmp_path: Path) -> None:
    model = trained_model(tmp_path / "blobs", flowers(tmp_path / "a.csv"), "kmeans", clocks=6, k=3)
    lines = run(model, "--data", flowers(tmp_path / "b.csv", 9, seed=2), "--out", "-").output.splitlines()
    clusters = [line.partition(",")[2] for line in lines]
    assert clusters[0] == "cluster"
    assert sorted(clusters[1:4]) == ["0", "1", "2"]
    assert clusters[1:4] == clusters[4:7] == clusters[7:]
    (tmp_path / "plain.csv").write_text("".join(f"{x},{y}\n" for x, y in CENTRES))
    (tmp_path / "other.csv").write_text("".join(f"{x},{y},tulip\n" for x, y in CENTRES))
    for name in ("plain.csv", "other.csv"):
        found = run(model, "--data", str(tmp_path / name), "--out", "-").output.splitlines()[1:]
        assert [line.partition(",")[2] for line in found] == clusters[1:4]
