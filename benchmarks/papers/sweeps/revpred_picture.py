"""The picture of benchmark `revpred`, as Figure 10 (a) and (b) of the paper."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure as Canvas

from proteus_spot.benchmarks.papers.sweeps.revpred_scores import Scores


def draw_scores(scores: Mapping[str, Mapping[str, Scores]], markets: Sequence[str], note: str, target: Path) -> None:
    """Draw accuracy and F1 of each predictor by market, a row for each kind of bid."""
    canvas = Canvas(figsize=(13, 3.6 * len(scores)), layout="constrained")
    axes = canvas.subplots(len(scores), 2, squeeze=False)
    for row, (kind, by_name) in enumerate(scores.items()):
        for column, what in enumerate(("accuracy", "f1")):
            axis = axes[row, column]
            width = 0.8 / len(by_name)
            for rank, (name, score) in enumerate(by_name.items()):
                axis.bar(np.arange(len(markets)) + rank * width, getattr(score, what), width, label=name)
            axis.set_xticks(np.arange(len(markets)) + 0.4 - width / 2, markets, rotation=15, fontsize=7)
            axis.set_ylim(0, 1)
            axis.set_title(f"{'accuracy' if what == 'accuracy' else 'F1'}, {kind} bids", fontsize=9)
    axes[0, 0].legend(fontsize=7, ncols=2)
    canvas.supxlabel(note, fontsize=8)
    canvas.savefig(target)
