"""The topic model: counts that always add up, a sampler that draws what it should, and topics that are found again."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proteus_spot.infra.datasets.documents import read
from proteus_spot.psengine.apps.base import Predicts
from proteus_spot.psengine.apps.lda.app import LatentDirichletAllocation, LdaData
from proteus_spot.psengine.apps.registry import resolve
from proteus_spot.psengine.config import JobError
from proteus_spot.psengine.single_process import initial, train_alone
from proteus_spot.psengine.tables.sharding import Arrays

V = 12


def part(lengths: list[int], seed: int = 0, start: int = 0) -> dict[str, np.ndarray]:
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    words = np.random.default_rng(seed).integers(0, V, offsets[-1]).astype(np.int32)
    return {"words": words, "offsets": offsets, "token_start": np.array([start])}


def parts(*lengths: list[int]) -> list[dict[str, np.ndarray]]:
    starts = np.cumsum([0, *map(sum, lengths)])
    return [part(some, seed, int(starts[seed])) for seed, some in enumerate(lengths)]


def app(of: list[dict[str, np.ndarray]], **more: float) -> LatentDirichletAllocation:
    return LatentDirichletAllocation(V, sum(len(p["words"]) for p in of), **{"k": 4, **more})  # type: ignore[arg-type]


def counted(tables: Arrays, words: np.ndarray, k: int) -> np.ndarray:
    counts = np.zeros((V, k), int)
    topic = tables["assignments"][:, 0]
    np.add.at(counts, (words[topic > 0], topic[topic > 0] - 1), 1)
    return counts


@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=5), min_size=1, max_size=3),
    k=st.sampled_from([2, 7, 40]),
    seed=st.integers(0, 99),
)
def test_the_counts_are_those_of_the_assignments_at_every_clock(lengths: list[list[int]], k: int, seed: int) -> None:
    raw = parts(*lengths)
    of = app(raw, k=k, seed=seed)
    words = np.concatenate([p["words"] for p in raw])

    def check(clock: int, tables: Arrays, loss: float) -> None:
        assert (tables["assignments"] > 0).all()
        assert np.array_equal(tables["word_topic"], counted(tables, words, k)), clock
        assert np.array_equal(tables["topics"][0], tables["word_topic"].sum(axis=0))
        assert tables["topics"].sum() == len(words)
        assert np.isfinite(loss)

    train_alone(of, [of.prepare(p) for p in raw], initial(of, 0, 2), 5, check)


def test_the_same_arguments_give_the_same_bits_and_parameters_stay_as_they_are() -> None:
    raw = parts([30, 20], [25])
    of = app(raw)
    prepared = [of.prepare(p) for p in raw]
    tables = train_alone(of, prepared, initial(of, 0), 2)
    for table in tables.values():
        table.setflags(write=False)
    mine = {**tables, "assignments": tables["assignments"][50:]}
    again = [of.run(prepared[1], mine, 3).updates for _ in range(2)]
    assert all(again[0][name].tobytes() == again[1][name].tobytes() for name in tables)
    assert again[0]["word_topic"].any()
    assert of.run(prepared[1], mine, 4).updates["assignments"].tobytes() != again[0]["assignments"].tobytes()


def test_partitions_draw_other_numbers() -> None:
    one, other = part([200], 3, 0), part([200], 3, 200)
    of = app([one, other], k=10)
    empty = {t.name: np.zeros((200 if t.own else t.n_rows, t.n_cols), t.dtype) for t in of.tables()}
    a, b = (of.run(of.prepare(p), empty, 1).updates["assignments"] for p in (one, other))
    assert not np.array_equal(a, b)


def dense_chances(of: LatentDirichletAllocation, raw: dict[str, np.ndarray], z: np.ndarray, token: int) -> np.ndarray:
    """The chance of each topic of one token, by the formula and over all topics."""
    others = np.arange(len(z)) != token
    document = np.repeat(np.arange(len(raw["offsets"]) - 1), np.diff(raw["offsets"]))
    in_document = np.bincount(z[others & (document == document[token])] - 1, minlength=of.k)
    of_word = np.bincount(z[others & (raw["words"] == raw["words"][token])] - 1, minlength=of.k)
    in_topic = np.bincount(z[others] - 1, minlength=of.k)
    weight = (in_document + of.alpha) * (of_word + of.beta) / (in_topic + of.beta * V)
    return np.asarray(weight / weight.sum())


@pytest.mark.parametrize(
    ("k", "alpha", "of_words"),
    [
        pytest.param(3, 0.5, 3, id="a list in one step"),
        pytest.param(40, 0.3, 4, id="a list, and topics that are not in it"),
        pytest.param(90, 0.3, 17, id="a list in three steps, and two blocks of topics"),
        pytest.param(40, 0.3, 40, id="a whole row"),
        pytest.param(90, 0.3, 90, id="a whole row of two blocks"),
    ],
)
def test_a_token_is_drawn_with_the_chances_of_the_formula(k: int, alpha: float, of_words: int) -> None:
    """The first token is drawn first, so that nothing else has changed; its topic is counted over clocks."""
    raw = part([6, 3, 150], 5)
    raw["words"][10:] = raw["words"][0]
    of = app([raw], k=k, alpha=alpha, beta=0.2)
    prepared = of.prepare(raw)
    z = np.random.default_rng(1).integers(1, min(k, of_words) + 1, 159)
    z[-of_words:] = np.arange(of_words) + 1  # the word is in each of them
    word_topic = np.zeros((V, k), np.int32)
    np.add.at(word_topic, (raw["words"], z - 1), 1)
    tables = {
        "assignments": z[:, None].astype(np.int16),
        "word_topic": word_topic if prepared.rows is None else word_topic[prepared.rows],
        "topics": word_topic.sum(axis=0)[None].astype(np.int64),
    }
    token, draws = 0, 6_000
    topics = [
        z[token] + of.run(prepared, tables, clock).updates["assignments"][token, 0] for clock in range(2, draws + 2)
    ]
    found = np.bincount(np.array(topics) - 1, minlength=k) / draws
    expected = dense_chances(of, raw, z, token)
    assert np.abs(found - expected).max() < 4.5 * np.sqrt(0.25 / draws)
    assert 0.5 * np.abs(found - expected).sum() < 0.5 * np.sqrt(k / draws) + 0.005


@pytest.mark.parametrize(("k", "lengths"), [(64, [400]), (200, [300, 300])])
def test_a_word_whose_topics_become_many_keeps_its_counts(k: int, lengths: list[int]) -> None:
    """Its list grows until its row is summed instead, in the middle of a document."""
    raw = part(lengths, 1)
    raw["words"][:] = np.arange(len(raw["words"])) % 2
    of = app([raw], k=k, alpha=5.0, beta=2.0, start_topics=2)
    prepared = of.prepare(raw)
    seen: list[int] = []

    def check(clock: int, tables: Arrays, loss: float) -> None:
        del clock, loss
        assert np.array_equal(tables["word_topic"], counted(tables, raw["words"], k))
        seen.append(int((tables["word_topic"] > 0).sum(axis=1).max()))

    train_alone(of, [prepared], initial(of, 0), 4, check)
    assert seen[0] <= 2
    assert seen[-1] > k // 4 + 8


def test_the_loss_is_that_of_each_token_given_the_others() -> None:
    """With one token there is nothing that could change on the way."""
    raw = part([1], 2)
    of = app([raw], k=5)
    prepared = of.prepare(raw)
    tables = train_alone(of, [prepared], initial(of, 0), 1)
    assert of.run(prepared, _rows(of, prepared, tables, 2), 2).loss_sum == pytest.approx(np.log(V), rel=1e-6)


def _rows(of: LatentDirichletAllocation, data: LdaData, tables: Arrays, clock: int) -> Arrays:
    wanted = of.rows(data, clock)
    return {name: table[wanted[name]] if name in wanted else table for name, table in tables.items()}


def test_rows_asked_for_one_by_one_give_what_the_whole_table_gives() -> None:
    raw = part([40])
    raw["words"] %= 3
    of = app([raw])
    prepared = of.prepare(raw)
    assert of.rows(prepared, 2)["word_topic"].tolist() == [0, 1, 2]
    whole = app([raw])
    whole.rows = lambda data, clock: {}  # type: ignore[method-assign]
    some, all_of_it = (train_alone(a, [prepared], initial(a, 0), 4) for a in (of, whole))
    assert all(some[name].tobytes() == all_of_it[name].tobytes() for name in some)


def test_topics_of_the_generated_documents_are_found() -> None:
    """Held-out perplexity ends far below that of word frequencies."""
    data = read("topics", 4)
    of = resolve("lda", {**data.sizes, "k": 10})
    assert isinstance(of, LatentDirichletAllocation)
    held = data.heldout()
    perplexities: list[float] = []
    raw = list(data.parts(0))
    tables = train_alone(
        of,
        [of.prepare(p) for p in raw],
        initial(of, 0),
        60,
        lambda clock, tables, loss: (
            perplexities.append(of.evaluate(tables, held)["perplexity"]) if clock % 59 == 1 else None
        ),
    )
    frequency = np.bincount(np.concatenate([p["words"] for p in raw]), minlength=1000) + 0.01
    plain = np.exp(-np.log((frequency / frequency.sum())[held["words"]]).mean())
    assert perplexities[-1] < 0.6 * plain
    assert perplexities[-1] < 0.8 * perplexities[0]
    assert isinstance(of, Predicts)
    assert of.predicts == "topic"
    mixtures = of.predict(tables, held)
    assert mixtures.dtype == np.float32
    assert mixtures.shape == (len(held["ids"]), 10)
    assert np.allclose(mixtures.sum(axis=1), 1, atol=1e-4)
    assert of.evaluate(tables, held) == of.evaluate(tables, held)


def test_the_top_words_of_a_topic_are_those_with_most_of_its_tokens() -> None:
    counts = np.array([[2, 0, 0], [5, 0, 1], [0, 0, 4], [2, 0, 1], [9, 0, 0]], np.int32)
    of = LatentDirichletAllocation(5, 24, k=3)
    assert [words.tolist() for words in of.top_words({"word_topic": counts}, 3)] == [[4, 1, 0], [], [2, 1, 3]]


def test_the_joint_likelihood_is_the_product_of_the_chances_one_after_another() -> None:
    raw = part([3, 4], 1)
    of = app([raw], k=3, alpha=0.7, beta=0.4)
    z = np.array([1, 2, 2, 3, 1, 1, 3])
    document = np.array([0, 0, 0, 1, 1, 1, 1])
    log = 0.0
    for t, (word, topic) in enumerate(zip(raw["words"], z, strict=True)):
        before = np.arange(7) < t
        same = z[before] == topic
        log += np.log(
            (same[document[before] == document[t]].sum() + 0.7) / ((document[before] == document[t]).sum() + 2.1)
        )
        log += np.log(((raw["words"][before] == word) & same).sum() + 0.4) - np.log(same.sum() + 0.4 * V)
    assert of.joint_log_likelihood(raw["words"], raw["offsets"], z) == pytest.approx(log / 7, rel=1e-9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"words": None}, "no array 'words'"),
        ({"words": np.array([0, V], np.int32), "offsets": np.array([0, 2])}, "wanted 0 to 11"),
        ({"offsets": np.array([0, 9])}, "offsets end at"),
        ({"token_start": np.array([7])}, "wanted within 0 to 5"),
    ],
)
def test_bad_data_are_told(change: dict[str, np.ndarray | None], message: str) -> None:
    arrays = {name: value for name, value in {**part([2, 3]), **change}.items() if value is not None}
    with pytest.raises(ValueError, match=message):
        app([part([5])]).prepare(arrays)


def test_parameters_that_make_no_sense_are_told() -> None:
    with pytest.raises(ValueError, match="k is 1; want a whole number from 2"):
        LatentDirichletAllocation(5, 5, k=1)
    with pytest.raises(JobError, match="app 'lda' has no parameter blocks any more; want parallel=model"):
        resolve("lda", {"n_words": 5, "n_tokens": 5, "blocks": 2})
    with pytest.raises(JobError, match="parallel is 'both'; want one of data, model"):
        resolve("lda", {"n_words": 5, "n_tokens": 5, "parallel": "both"})
