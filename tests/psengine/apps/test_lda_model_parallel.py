"""Model-parallel topics: blocks that do not interfere, tokens that are kept, and topics that are found again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proteus_spot.infra.datasets.documents import read
from proteus_spot.psengine.apps.lda import model_parallel
from proteus_spot.psengine.apps.lda.model_parallel import (
    BlockSampler,
    BlockTask,
    ModelParallelLda,
    TopicRotation,
    blocks_of_words,
)
from proteus_spot.psengine.apps.registry import resolve
from proteus_spot.psengine.drivers.interface import Done, Task
from proteus_spot.psengine.drivers.rotation import AHEAD, Rotation
from proteus_spot.psengine.single_process import drive_alone, initial
from proteus_spot.psengine.tables.sharding import Arrays
from tests.psengine.apps.test_lda import V, part, parts


def app(raw: list[dict[str, np.ndarray]], **more: Any) -> ModelParallelLda:
    n_tokens = sum(len(p["words"]) for p in raw)
    made = resolve(
        "lda", {"parallel": "model", "n_words": V, "n_tokens": n_tokens, "n_partitions": len(raw), "k": 4, **more}
    )
    assert isinstance(made, ModelParallelLda)
    return made


def trained(model: ModelParallelLda, raw: list[dict[str, np.ndarray]], groups: int) -> tuple[Arrays, list[float]]:
    return drive_alone(model, [model.prepare(p) for p in raw], initial(model, 0), groups)


class Sent:
    """A dispatcher that keeps what it is given."""

    def __init__(self) -> None:
        self.tasks: dict[int, list[Task]] = {}
        self.sealed: list[int] = []

    def dispatch(self, task: Task) -> None:
        self.tasks.setdefault(task.group, []).append(task)

    def seal(self, group: int, members: Any = None) -> None:
        self.sealed.append(group)

    def evaluate(self, group: int) -> None: ...

    def finish(self, group: int, reason: str = "") -> None: ...


def test_in_a_pass_each_executor_has_each_block_once_and_in_a_group_no_two_have_one() -> None:
    driver, sent = Rotation(), Sent()
    driver.start(sent, 5, 0)
    for group in range(1, 9):
        assert sent.sealed[-1] == group + AHEAD
        driver.committed(sent, group)
    for group, tasks in sent.tasks.items():
        assert sorted(task.args for task in tasks) == [0, 1, 2, 3, 4], group
    for partition in range(5):
        assert sorted(sent.tasks[group][partition].args for group in range(2, 7)) == [0, 1, 2, 3, 4]


def test_a_driver_that_is_restored_decides_alike() -> None:
    driver, sent = TopicRotation(3), Sent()
    driver.start(sent, 2, 0)

    def complete(group: int, to: TopicRotation, sent: Sent) -> None:
        for task in sent.tasks[group]:
            to.completed(sent, Done(task, np.array([group, task.partition, -1]), 1, 0.0))

    complete(1, driver, sent)
    driver.committed(sent, 1)
    complete(2, driver, sent)
    saved = driver.snapshot()
    other, others = TopicRotation(3), Sent()
    other.restore(saved)
    for to, dispatched in ((driver, sent), (other, others)):
        to.committed(dispatched, 2)
    assert [task.args.topics.tolist() for task in sent.tasks[4]] == [[6, 2, -4]] * 2
    assert [(t.partition, t.args.block, t.args.topics.tolist()) for t in others.tasks[4]] == [
        (t.partition, t.args.block, t.args.topics.tolist()) for t in sent.tasks[4]
    ]
    assert isinstance(sent.tasks[1][0].args, BlockTask)
    assert sent.tasks[1][0].args.block is None


@settings(max_examples=20, deadline=None)
@given(
    lengths=st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=5), min_size=1, max_size=3),
    k=st.sampled_from([2, 7, 40]),
    groups=st.integers(1, 9),
    seed=st.integers(0, 99),
)
def test_the_counts_are_those_of_the_states_after_every_group(
    lengths: list[list[int]], k: int, groups: int, seed: int
) -> None:
    raw = parts(*lengths)
    model = app(raw, k=k, seed=seed)
    made: list[BlockSampler] = []
    make = model.executor
    model.executor = lambda *args: made.append(make(*args)) or made[-1]  # type: ignore[func-returns-value, method-assign]
    tables, losses = trained(model, raw, groups)
    counts = np.zeros((V, k), np.int64)
    for executor in made:
        state = executor.snapshot()
        in_documents = np.zeros((len(executor._data.slots) - 1, k), np.int64)
        for number, block in enumerate(executor._data.blocks):
            topic = state[f"topics of block {number}"]
            assert (topic > 0).all()
            np.add.at(counts, (block.words, topic - 1), 1)
            document = np.repeat(np.arange(len(block.starts) - 1), np.diff(block.starts))
            np.add.at(in_documents, (document, topic - 1), 1)
        if executor._lists is not None:
            lists = executor._lists.fitted(executor._data.slots)
            topics, numbers, n_topics = lists.topics, lists.counts, lists.lengths
            assert (np.diff(lists.slots) <= n_topics * 1.25 + 4).all()
            listed = np.zeros_like(in_documents)
            for d, (low, n) in enumerate(zip(lists.slots, n_topics, strict=False)):
                listed[d, topics[low : low + n]] = numbers[low : low + n]
            assert np.array_equal(listed, in_documents)
    assert np.array_equal(tables["word_topic"], counts)
    assert np.array_equal(tables["topics"][0], counts.sum(axis=0))
    assert counts.sum() == sum(map(sum, lengths))
    assert np.isfinite(losses).all()


def test_an_executor_that_has_moved_goes_on_with_the_same_bits() -> None:
    """What is not in the state is counted again."""
    raw = parts([30, 20], [25], [9, 40])
    stays, moves = app(raw, k=7), app(raw, k=7)
    make = moves.executor

    def forgetful(*args: Any) -> BlockSampler:
        executor = make(*args)
        run = executor.run

        def run_elsewhere(*args: Any) -> Any:
            executor.restore(executor.snapshot())
            assert executor._lists is None
            return run(*args)

        executor.run = run_elsewhere  # type: ignore[method-assign]
        return executor

    moves.executor = forgetful  # type: ignore[method-assign]
    (ours, losses), (theirs, others) = (trained(model, raw, 8) for model in (stays, moves))
    assert all(ours[name].tobytes() == theirs[name].tobytes() for name in ours)
    assert losses == others


def test_a_document_without_room_for_its_topics_has_them_counted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = parts([3, 20, 1], [25, 2], [9, 12])
    whole = trained(app(raw, k=30), raw, 9)
    monkeypatch.setattr(model_parallel, "_ROOM", 0)
    monkeypatch.setattr(model_parallel, "_TOPICS_OF_ONE_MORE", 1000)
    n_counted = 0
    count = BlockSampler._listed

    def counted(sampler: BlockSampler) -> Any:
        nonlocal n_counted
        n_counted += 1
        return count(sampler)

    monkeypatch.setattr(BlockSampler, "_listed", counted)
    tight = trained(app(raw, k=30), raw, 9)
    assert n_counted > len(raw), "some documents come to have more topics"
    assert all(whole[0][name].tobytes() == tight[0][name].tobytes() for name in whole[0])
    assert whole[1] == tight[1]


def test_bits_do_not_depend_on_where_arrays_are_in_memory() -> None:
    """With few topics the arrays of a document are near each other, at times."""
    raw, dice = parts([3, 20, 1], [25, 2], [9, 12]), np.random.default_rng(0)
    found = set()
    for _ in range(200):
        for size in dice.integers(1, 400, 100):  # freed at once: the next arrays take these places
            np.zeros(size, np.float32)
        tables, losses = trained(app(raw, k=30), raw, 9)
        found.add((tables["word_topic"].tobytes(), tuple(losses)))
    assert len(found) == 1


def test_a_state_is_never_written_to() -> None:
    raw = [part([30, 20])]
    model = app(raw)
    make = model.executor

    def frozen(*args: Any) -> BlockSampler:
        executor = make(*args)
        snapshot = executor.snapshot

        def locked() -> Arrays:
            state = snapshot()
            for array in state.values():
                array.setflags(write=False)
            return state

        executor.snapshot = locked  # type: ignore[method-assign]
        return executor

    model.executor = frozen  # type: ignore[method-assign]
    assert trained(model, raw, 5)[1][-1] > 0


def test_blocks_are_runs_of_words_with_about_equally_many_tokens() -> None:
    counts = np.array([400, 0, 0, 0, *[50] * 8])
    assert blocks_of_words(counts, V, 2).tolist() == [0] + [1] * 11
    assert blocks_of_words(np.eye(V)[0], V, V).tolist() == list(range(V)), "each has a word"
    assert blocks_of_words(None, V, 4).tolist() == [0, 1, 2, 3] * 3, "dealt out where nobody has counted"
    with pytest.raises(ValueError, match=r"word_counts have shape \(13,\): wanted \(12,\)"):
        blocks_of_words(np.ones(V + 1), V, 2)


def test_more_partitions_than_words_are_refused() -> None:
    model = app([part([3])], n_words=5, n_partitions=6)
    with pytest.raises(ValueError, match="there are 6 partitions and 5 words; want at least one word for each"):
        model.check_sizes()


def test_topics_of_the_generated_documents_are_found() -> None:
    data = read("topics", 4)
    model = resolve("lda", {**data.sizes, "k": 10, "parallel": "model"})
    assert isinstance(model, ModelParallelLda)
    held, raw = data.heldout(), list(data.parts(0))
    tables, losses = trained(model, raw, 1 + 4 * 30)
    frequency = np.bincount(np.concatenate([p["words"] for p in raw]), minlength=1000) + 0.01
    plain = np.exp(-np.log((frequency / frequency.sum())[held["words"]]).mean())
    assert model.evaluate(tables, held)["perplexity"] < 0.6 * plain
    passes = np.reshape(losses[1:], (-1, 4)).sum(axis=1)
    assert passes[-1] < 0.9 * passes[0]
    mixtures = model.predict(tables, held)
    assert np.allclose(mixtures.sum(axis=1), 1, atol=1e-4)


def test_passes_are_turns_of_all_blocks_after_the_first_group() -> None:
    driver, plain = TopicRotation(3), Rotation()
    for one in (driver, plain):
        one.start(Sent(), 4, 0)
    assert [driver.passes(group, 0) for group in (0, 1, 3, 5, 9)] == [0.0, 0.0, 0.5, 1.0, 2.0]
    assert [plain.passes(group, 0) for group in (1, 4, 8)] == [0.25, 1.0, 2.0]
