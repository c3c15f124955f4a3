"""`lda` through the engine beside tomotopy (see `train_lda`)."""

import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.figure import Figure, figure
from benchmarks.training import train_lda as alone
from benchmarks.training.through_engine import BARE, through_engine
from infra.datasets.documents import Documents, DocumentSet, drawn_documents
from psengine.apps.lda.app import LatentDirichletAllocation

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
    for k, alpha, passes, blocks in alone._CASES:
        params = {"k": k, "alpha": alpha, "beta": alone._BETA, "blocks": blocks}
        app = LatentDirichletAllocation(alone._WORDS, len(words), **params)  # type: ignore[arg-type]
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
                clocks = taken * app.blocks + 1
                result, model = through_engine(directory, "lda", sizes, sets.parts(0), sets.heldout(), clocks)
                _check(app, sets, model["assignments"][:, 0], likelihood)
                ours.append(result["seconds"])
                shutil.rmtree(directory)
        what = f"lda to one joint log-likelihood, {len(words):,} tokens, {k} topics"
        note = f"{likelihood:.3f} a token: {taken} passes against {passes}"
        peer = f"tomotopy, {alone._THREADS} threads"
        yield figure("train", what, "s", ours, theirs, peer, note)
        speeds = [[len(words) * n / s for s in seconds] for n, seconds in ((taken, ours), (passes, theirs))]
        yield figure("train", f"{what}: tokens a second", "tokens/s", speeds[0], speeds[1], peer, "more is better")
        yield figure("train", what, "s", ours, bare, BARE, f"{clocks} clocks")


def _check(app: LatentDirichletAllocation, sets: DocumentSet, assignments: np.ndarray, likelihood: float) -> None:
    raw = list(sets.parts(0))
    words = np.concatenate([arrays["words"] for arrays in raw])
    offsets = np.concatenate([[0], *(arrays["offsets"][1:] + arrays["token_start"] for arrays in raw)])
    found = app.joint_log_likelihood(words, offsets, assignments)
    if found < likelihood - 1e-3:
        raise RuntimeError(f"the engine reached a joint log-likelihood of {found:.4f}, the mark is {likelihood:.4f}")
