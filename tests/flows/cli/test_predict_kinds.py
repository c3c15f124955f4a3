"""`proteus predict` of ratings and of topics: names of the user's own file, known numbers, and refusals by line."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from proteus_spot.flows.cli.main import cli
from proteus_spot.infra.applications.trained_models import load_model
from proteus_spot.infra.errors import InputError
from proteus_spot.studies.prediction.predictions import predict
from tests.support.cli_process import Outcome, processes_of, proteus
from tests.support.trained_models import trained_model


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["predict", *arguments])


def refused(says: str, *arguments: str) -> None:
    result = run(*arguments, "--out", "-")
    assert isinstance(result.exception, InputError), result
    assert says in str(result.exception)
    assert "\n" not in str(result.exception)
    assert result.output == ""


def write(path: Path, lines: list[str]) -> str:
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


# -- ratings ----------------------------------------------------------------------------------------------------------


def stars(user: int, item: int) -> int:
    """Half of the users like the first half of the items, the others the second."""
    return 5 if (user % 2 == 0) == (item < 6) else 1


USERS, ITEMS = 20, 12
RATED = [(f"user {u}", 100 + i, stars(u, i)) for u in range(USERS) for i in range(ITEMS) if (u + 3 * i) % 5]
NOT_RATED = [(u, i) for u in range(USERS) for i in range(ITEMS) if (u + 3 * i) % 5 == 0]
FILMS = {"rank": 4, "step": 0.3, "spread": 0.1}


@pytest.fixture
def films(tmp_path: Path) -> str:
    source = write(tmp_path / "films.csv", ["user,film,stars", *(f"{u},{i},{s}" for u, i, s in RATED)])
    return trained_model(tmp_path / "blobs", source, "mf", clocks=60, **FILMS)


def test_pairs_are_told_by_the_names_of_the_training_data(tmp_path: Path, films: str) -> None:
    for name, between in (("new.csv", ","), ("new.tsv", "\t"), ("new.dat", "::")):
        new = write(tmp_path / name, [between.join((f"user {u}", str(100 + i))) for u, i in NOT_RATED])
        out = tmp_path / "out.csv"
        assert run(films, "--data", new, "--out", str(out)).output == f"{len(NOT_RATED)} rows: {out}\n"
        with out.open(newline="") as file:
            rows = list(csv.reader(file))
        assert rows[0] == ["row", "rating"]
        assert [int(row) for row, _ in rows[1:]] == list(range(len(NOT_RATED)))
        told = [abs(float(rating) - stars(*pair)) < 1.5 for (_, rating), pair in zip(rows[1:], NOT_RATED, strict=True)]
        assert sum(told) > 0.9 * len(told)


def test_where_ratings_are_known_the_error_is_told(tmp_path: Path, films: str) -> None:
    data, out = str(tmp_path / "films.csv"), tmp_path / "out.csv"
    found = predict(films, data)
    given = np.array([s for _, _, s in RATED], float)
    assert found.rmse == pytest.approx(np.sqrt(np.mean((found.values - given) ** 2)), rel=1e-6)
    assert found.rmse < 0.5
    result = run(films, "--data", data, "--out", str(out))
    assert result.output == f"{len(RATED)} rows, rmse {found.rmse:.4f} from their ratings: {out}\n"
    figures = json.loads(run(films, "--data", data, "--out", str(out), "--json", "-").output)
    assert (figures["predicts"], figures["rows"], figures["accuracy"]) == ("rating", len(RATED), None)
    assert figures["rmse"] == found.rmse


def test_names_lie_with_the_model_and_not_with_its_data(tmp_path: Path, films: str) -> None:
    moved = tmp_path / "elsewhere"
    Path(films).rename(moved)
    for file in (tmp_path / "blobs").rglob("*.npz"):
        file.unlink()
    assert predict(str(moved), write(tmp_path / "new.csv", ["user 3,107"])).values.tolist() == pytest.approx([5], abs=1)


def test_an_unknown_user_or_item_is_refused_by_its_line(tmp_path: Path, films: str) -> None:
    def new(*lines: str) -> str:
        return write(tmp_path / "new.csv", list(lines))

    for says, lines in (
        ("line 3: user 'zoe' is none of the 20 users that the model was trained on", ("user 1,100", "", "zoe,100")),
        ("line 2: item '112' is none of the 12 items that", ("user 1,100", "user 2,112", "zoe,100")),
        ("line 1: item '0' is none of the 12 items", ("user 1,0",)),
        ("line 2: item 'Metropolis' is none of", ("user 1,100", "user 1,Metropolis")),
        ("line 3: the rating is 'good'; write a number", ("user,film,stars", "user 1,100,5", "user 1,101,good")),
        ("line 1: has 1 of the columns user, item, rating; want two at least", ("user1",)),
        ("has a header and no ratings; give at least one", ("user,film",)),
    ):
        refused(f"new.csv: {says}", films, "--data", new(*lines))
    refused("is a model of app mf, whose data have none", films, "--data", new("user 1,100"), "--no-labels")


def test_the_built_in_set_is_told_too(tmp_path: Path) -> None:
    model = trained_model(tmp_path, "ratings", "mf", clocks=8, rank=8)
    found = predict(model, "ratings")
    assert len(found.values) == 53038
    assert found.rmse is not None
    assert found.rmse < 0.8


def test_a_model_without_names_says_so(tmp_path: Path, films: str) -> None:
    manifest = Path(films) / "manifest.json"
    body = json.loads(manifest.read_text())
    del body["files"]["names.npz"]
    manifest.write_text(json.dumps(body))
    refused("does not hold the names of users and items; train it again", films, "--data",
            str(tmp_path / "films.csv"))  # fmt: skip


# -- topics -----------------------------------------------------------------------------------------------------------

#: Two topics: words 0 to 4, and words 5 to 9.
NEWS = [f"5 {' '.join(f'{5 * (d % 2) + w}:{1 + (d + w) % 3}' for w in range(5))}" for d in range(60)]
WORDS = ["ball", "goal", "team", "cup", "coach", "vote", "law", "party", "tax", "court"]


@pytest.fixture(scope="module")
def news(tmp_path_factory: pytest.TempPathFactory) -> str:
    here = tmp_path_factory.mktemp("news")
    return trained_model(here, write(here / "news.ldac", NEWS), "lda", clocks=20, k=2, start_topics=2)


def test_documents_get_the_share_of_each_topic_and_the_likeliest(tmp_path: Path, news: str) -> None:
    lines = ["2 0:3 1:1", "0", "2 5:2 9:4", "2 0:1 5:1"]
    ldac, out = write(tmp_path / "new.ldac", lines), tmp_path / "out.csv"
    uci = write(tmp_path / "new.txt", ["4", "10", "6", "1 1 3", "1 2 1", "3 6 2", "3 10 4", "4 1 1", "4 6 1"])
    assert run(news, "--data", ldac, "--out", str(out), "--json", str(tmp_path / "a.json")).output == f"3 rows: {out}\n"
    with out.open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["row", "topic", "topic_0", "topic_1"]
    assert [int(row[0]) for row in rows[1:]] == [0, 2, 3], "documents without words are passed over"
    shares = np.array([row[2:] for row in rows[1:]], float)
    assert shares.sum(axis=1) == pytest.approx(np.ones(3), abs=1e-5)
    assert [int(row[1]) for row in rows[1:]] == shares.argmax(axis=1).tolist()
    assert {int(rows[1][1]), int(rows[2][1])} == {0, 1}
    assert shares[:2].max(axis=1).min() > 0.9
    assert shares[2].max() < 0.6
    assert run(news, "--data", uci, "--out", "-").output == out.read_text()
    figures = json.loads((tmp_path / "a.json").read_text())
    assert (figures["predicts"], figures["rows"], figures["accuracy"], figures["rmse"]) == ("topic", 3, None, None)


def test_a_word_that_the_model_does_not_know_is_refused_by_its_line(tmp_path: Path, news: str) -> None:
    ldac = write(tmp_path / "new.ldac", ["1 0:1", "", "2 9:1 10:2"])
    refused("new.ldac: line 3: term is 10; want 0 to 9, as the model was trained", news, "--data", ldac)
    uci = write(tmp_path / "new.txt", ["2", "12", "2", "1 10 1", "2 11 1"])
    refused("new.txt: line 5: wordID is 11; want 1 to 10, as the model was trained", news, "--data", uci)
    refused("topics: has a word 999; want 0 to 9", news, "--data", "topics")
    refused("new.csv'", news, "--data", "new.csv")


def test_topics_are_told_by_their_words(tmp_path: Path, news: str) -> None:
    vocabulary = write(tmp_path / "vocab.txt", WORDS)
    result = run(news, "--topics", "3", "--vocabulary", vocabulary, "--out", "-", "--json", str(tmp_path / "a.json"))
    rows = list(csv.reader(result.output.splitlines()))
    assert rows[0] == ["topic", "share", "words"]
    assert [row[0] for row in rows[1:]] == ["0", "1"]
    told = [row[2].split() for row in rows[1:]]
    assert {frozenset(words) <= frozenset(WORDS[:5]) for words in told} == {True, False}
    assert [len(words) for words in told] == [3, 3]
    _, tables, _ = load_model(news)
    assert [float(row[1]) for row in rows[1:]] == pytest.approx(tables["topics"][0] / tables["topics"].sum())
    figures = json.loads((tmp_path / "a.json").read_text())
    assert [topic["words"] for topic in figures["topics"]] == told
    numbers = run(news, "--topics", "3", "--out", "-").output.splitlines()[1:]
    assert [[WORDS[int(word)] for word in row[2].split()] for row in csv.reader(numbers)] == told
    out = tmp_path / "topics.csv"
    assert run(news, "--topics", "3", "--out", str(out)).output == f"2 topics: {out}\n"
    write(tmp_path / "vocab.txt", WORDS[:9])
    refused("vocab.txt: has 9 words and the documents 10", news, "--topics", "3", "--vocabulary", vocabulary)


# -- from a training to its predictions -------------------------------------------------------------------------------


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("app", "name", "lines", "new", "head"),
    [
        ("mf", "a.csv", [f"{u},{i},{s}" for u, i, s in RATED], "user 3,107", "row,rating"),
        ("lda", "a.ldac", NEWS, "2 0:3 1:1", "row,topic,topic_0,topic_1"),
    ],
    ids=["mf", "lda"],
)
def test_what_the_engine_trained_predicts(
    tmp_path: Path, app: str, name: str, lines: list[str], new: str, head: str
) -> None:
    def command(*arguments: str) -> Outcome:
        return proteus(*arguments, cwd=tmp_path, home=tmp_path / "home")

    write(tmp_path / name, lines)
    write(tmp_path / f"new-{name}", [new])
    rank = ("--param", "k=2") if app == "lda" else ("--param", "rank=4")
    trained = command("train", app, "--data", name, "--clocks", "12", "--partitions", "2", "--nodes", "r=1,t=1",
                      "--job", "a", *rank)  # fmt: skip
    assert trained.code == 0, trained
    told = command("predict", "runs/a/blobs/jobs/a/model", "--data", f"new-{name}", "--out", "-")
    assert told.code == 0, told
    header, row = told.out.splitlines()
    assert header == head
    assert row.startswith("0,")
    assert processes_of(tmp_path) == []
