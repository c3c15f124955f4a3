"""`mf` through the engine beside libmf (see `train_mf`)."""

import importlib.util
import os
import shutil
from pathlib import Path

from proteus_spot.benchmarks.figure import Figure, figure
from proteus_spot.benchmarks.training.through_engine import BARE, through_engine
from proteus_spot.benchmarks.training.train_mf import PENALTY, RANK, RATINGS, THREADS, Peer, generated, mark_of, reached

_ROUNDS = 3
#: Runs of the engine and of the bare loop per run of the peer: jobs of a few seconds vary with the machine's load.
_TURNS = 3


def run(scratch: Path, n_ratings: int = RATINGS) -> list[Figure]:
    """Measure; the sides alternate. No figures if libmf is not installed."""
    if importlib.util.find_spec("libmf") is None:
        print("train: mf is skipped: needs libmf; pip install libmf")
        return []
    data = generated(n_ratings)
    peer = Peer(data)
    mark, passes, step = mark_of(peer)
    clocks = reached(data, mark)[1]
    sizes = {name: size for name, size in data.sizes.items() if name != "n_examples"}
    params = {**sizes, "rank": RANK, "regularisation": PENALTY}
    theirs, ours, bare = [], [], []
    for number in range(_ROUNDS):
        theirs.append(peer.seconds(step, passes))
        for turn in range(_TURNS):
            bare.append(reached(data, mark)[0])
            directory = scratch / f"{number}-{turn}"
            result, _ = through_engine(directory, "mf", params, data.parts(0), data.heldout(), clocks * THREADS)
            if result["metrics"]["rmse"] > mark + 1e-6:
                raise RuntimeError(f"the engine reached {result['metrics']['rmse']:.4f}, the mark is {mark:.4f}")
            ours.append(result["seconds"])
            shutil.rmtree(directory)  # each holds a copy of the ratings
    what = f"mf to one held-out error, {data.rows / 1e6:.1f} M ratings, rank {RANK}"
    note = f"mark {mark:.4f}: {clocks} passes against {passes}"
    library = "vectorised" if "LIBMF_OBJ" in os.environ else "as pip installs it"
    return [
        figure("train", what, "s", ours, theirs, f"libmf, {THREADS} threads, {library}", note),
        figure("train", what, "s", ours, bare, BARE, f"{clocks * THREADS} clocks"),
    ]
