"""Topics of a trained document model: the words with the largest share of each."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from proteus_spot.infra.applications.trained_models import load_model
from proteus_spot.infra.datasets.documents import read_vocabulary
from proteus_spot.infra.errors import InputError
from proteus_spot.psengine.apps.lda.app import LatentDirichletAllocation
from proteus_spot.studies.prediction.csv_tables import csv_bytes


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics of a model.

    Attributes
    ----------
    model : its URL.
    app : the application.
    shares : of each topic in the tokens that it was trained on; their sum is 1.
    words : of each topic, those with the most of its tokens first.
    """

    model: str
    app: str
    shares: tuple[float, ...]
    words: tuple[tuple[str, ...], ...]

    def as_csv(self) -> bytes:
        """Return a CSV with a line a topic: its number, its share, its words with blanks between them."""
        words = [" ".join(words) for words in self.words]
        return csv_bytes({"topic": range(len(words)), "share": self.shares, "words": words})

    def summary(self) -> str:
        """Return how many topics there are, for a terminal."""
        return f"{len(self.words)} topics"

    def figures(self) -> dict[str, Any]:
        """Return the same, JSON-able."""
        topics = [{"share": share, "words": words} for share, words in zip(self.shares, self.words, strict=True)]
        return {"model": self.model, "app": self.app, "topics": topics}


def topics(model: str, n: int, vocabulary: str | None = None, app: str = "") -> Topics:
    """Return up to `n` words of each topic of a model.

    Parameters
    ----------
    model, app : as of `infra.applications.trained_models.load_model`.
    vocabulary : path or URL of a file with the words, one a line in the order of their numbers; None: a word is shown
        by its number, counted from 0.

    Raises
    ------
    InputError
        One line: a model or a vocabulary that cannot be read or do not fit each other, a model without topics.
    """
    made, tables, about = load_model(model, app)
    if not isinstance(made, LatentDirichletAllocation):
        raise InputError(f"--topics: {about.url} is a model of app {about.app}, which has none; name a model of lda")
    names = list(map(str, range(made.n_words))) if vocabulary is None else read_vocabulary(vocabulary, made.n_words)
    tokens = np.asarray(tables["topics"][0], np.float64)
    words = tuple(tuple(names[word] for word in found) for found in made.top_words(tables, n))
    return Topics(about.url, about.app, tuple((tokens / max(tokens.sum(), 1)).tolist()), words)
