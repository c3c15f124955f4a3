"""`lda` through the engine beside tomotopy (see `train_lda`)."""

import importlib.util
import shutil
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from proteus_spot.benchmarks.figure import Figure, figure
from proteus_spot.benchmarks.training import train_lda as alone
from proteus_spot.benchmarks.training.bare_rotation import bare_rotation
from proteus_spot.benchmarks.training.through_engine import BARE, Arrays, through_engine
from proteus_spot.infra.datasets.documents import Documents, DocumentSet, drawn_documents
from proteus_spot.psengine.apps.lda import ModelParallelLda
from proteus_spot.psengine.apps.lda.topic_model import TopicModel

_ROUNDS = 3
#: Runs of the engine and of the bare loop per run of the peer: jobs of a few seconds vary with the machine's load.
_TURNS = 3


def run(scratch: Path) -> Iterator[Figure]:
    """Measure; the sides alternate. No figures if tomotopy is not installed."""
    if importlib.util.find_spec("tomotopy") is None:
        print("train: lda is skipped: needs tomotopy; pip install tomotopy")
        return
    import tomotopy

    words, offsets = drawn_documents(alone._DOCUMENTS, alone._WORDS, alone._TOPICS, alone._LENGTH, 0.02, 0.1, seed=7)
    documents = Documents(words, offsets, np.arange(alone._DOCUMENTS))
    for k, alpha, passes, parallel in alone._CASES:
        params = {"k": k, "alpha": alpha, "beta": alone._BETA, "parallel": parallel}
        app = alone._application(len(words), k, alpha, parallel)
        theirs, likelihood, taken = [], 0.0, 0
        ours: list[float] = []
        bare: list[float] = []
        for number in range(_ROUNDS):
            took_s, likelihood = alone._tomotopy(tomotopy, app, documents, passes)
            theirs.append(took_s)
            for turn in range(_TURNS):
                if turn:  # testing for the mark takes longer than the passes, whose number does not change
                    bare.append(alone._seconds(app, documents, taken))
                else:
                    bare_s, taken = alone._ours(app, documents, likelihood, alone._MOST_PASSES)
                    bare.append(bare_s)
                sets = DocumentSet(documents, documents, app.n_words, alone._THREADS)
                sizes = {**sets.sizes, **params}
                # The first clock gives every token a topic; the bare loop does not count it as a pass either.
                directory = scratch / f"{k}-{number}-{turn}"
                clocks = taken * (alone._THREADS if parallel == "model" else 1) + 1
                result, model = through_engine(directory, "lda", sizes, sets.parts(0), sets.heldout(), clocks)
                _check(app, sets, model, clocks, likelihood)
                ours.append(result["seconds"])
                shutil.rmtree(directory)
        what = f"lda to one joint log-likelihood, {len(words):,} tokens, {k} topics"
        note = f"{likelihood:.3f} a token: {taken} passes against {passes}"
        peer = f"tomotopy, {alone._THREADS} threads"
        yield figure("train", what, "s", ours, theirs, peer, note)
        speeds = [[len(words) * n / s for s in seconds] for n, seconds in ((taken, ours), (passes, theirs))]
        yield figure("train", f"{what}: tokens a second", "tokens/s", speeds[0], speeds[1], peer, "more is better")
        yield figure("train", what, "s", ours, bare, BARE, f"{clocks} clocks")


def _check(app: TopicModel, sets: DocumentSet, model: Arrays, clocks: int, likelihood: float) -> None:
    raw = list(sets.parts(0))
    if isinstance(app, ModelParallelLda):  # its tokens are not in the model: the counts are those of the bare loop
        groups = bare_rotation(app, [app.prepare(arrays) for arrays in raw], alone._THREADS)
        reached = next(islice(groups, clocks - 1, None))
        if not np.array_equal(reached.tables["word_topic"], model["word_topic"]):
            raise RuntimeError("the engine reached other counts than the bare loop")
        return
    words = np.concatenate([arrays["words"] for arrays in raw])
    offsets = np.concatenate([[0], *(arrays["offsets"][1:] + arrays["token_start"] for arrays in raw)])
    found = app.joint_log_likelihood(words, offsets, model["assignments"][:, 0])
    if found < likelihood - 1e-3:
        raise RuntimeError(f"the engine reached a joint log-likelihood of {found:.4f}, the mark is {likelihood:.4f}")
