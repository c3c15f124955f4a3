"""Kinds of data that applications learn from, and what each kind has to offer so that a job can be given its input.

A kind reads a source, checks all of it, holds a part out, and says how the rest is cut. Another kind is a module with a
function like `data_examples.read`, and a line in `KINDS` and in `psengine.apps.registry.WANTS`.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from numpy.typing import NDArray

from infra.datasets import documents as data_documents
from infra.datasets import examples as data_examples
from infra.datasets import files as data_files
from infra.datasets import ratings as data_ratings
from psengine.apps.registry import WANTS

#: The arrays of one file, by name.
Arrays = Mapping[str, NDArray[Any]]


class Prepared(Protocol):
    """A source that was read, checked and divided; nothing of it is written yet."""

    @property
    def rows(self) -> int:
        """How many rows there are to train on, in the words of the kind: examples, ratings, documents."""
        ...

    @property
    def heldout_rows(self) -> int:
        """How many are held out."""
        ...

    @property
    def sizes(self) -> Mapping[str, float]:
        """What applications are told of the set: names of `psengine.apps.base.SIZES`; most are counts (int)."""
        ...

    @property
    def about(self) -> Mapping[str, Any]:
        """What else the manifest shall say, such as the labels; JSON-able."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """How the source was read, where that may not be what its author expects; a line each."""
        ...

    def parts(self, seed: int) -> Iterator[Arrays]:
        """Yield the arrays of each partition, as many as were asked for when the source was read."""
        ...

    def heldout(self) -> Arrays:
        """Return the arrays that are held out; the same for every seed."""
        ...


#: Reads a source for so many partitions and an application (None: any); `InputError` where it cannot be used.
Reader = Callable[[str, int, str | None], Prepared]

KINDS: Mapping[str, Reader] = MappingProxyType(
    {"examples": data_examples.read, "ratings": data_ratings.read, "documents": data_documents.read}
)

#: The built-in set that each kind takes where a user names none, and the names of all.
DEFAULT_SETS: Mapping[str, str] = MappingProxyType({"examples": "digits", "ratings": "ratings", "documents": "topics"})
BUILT_IN_SETS = frozenset({*data_files.BUILT_IN, *data_ratings.BUILT_IN, data_documents.TOPICS})


def kind_for(app: str | None) -> str:
    """Return the kind of data that an application learns from; labelled examples where it says nothing else."""
    return WANTS.get(app or "", "examples")


_NAMES: Mapping[str, tuple[frozenset[str], tuple[str, ...]]] = MappingProxyType(
    {
        "examples": (frozenset(data_files.BUILT_IN), data_files.DATA_ENDINGS),
        "ratings": (frozenset(data_ratings.BUILT_IN), data_ratings.RATING_ENDINGS),
        "documents": (frozenset({data_documents.TOPICS}), data_documents.DOCUMENT_ENDINGS),
    }
)


def check_name(source: str, app: str | None) -> None:
    """Refuse a name that is neither a built-in set of the kind that `app` learns from, nor that of a file of such data.

    Raises
    ------
    InputError
        One line that names the source. The file is not opened.
    """
    sets, endings = _NAMES[kind_for(app)]
    if source not in sets:
        data_files.check_form(source, endings, sets)


def absolute(source: str) -> str:
    """Return a path as an absolute one, as whoever works elsewhere wants it; a URL or a name as it is."""
    return source if source in BUILT_IN_SETS or "://" in source else str(Path(source).absolute())
