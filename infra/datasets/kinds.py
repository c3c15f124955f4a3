"""The kinds of data that applications learn from, and the protocol that each kind implements.

A kind reads a source, checks all of it, holds out a part and partitions the rest. To add a kind, write a module with a
function like `infra.datasets.examples.read`, and add a line to `KINDS` and to `psengine.apps.registry.WANTS`.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from numpy.typing import NDArray

from proteus_spot.infra.datasets import arrays as data_arrays
from proteus_spot.infra.datasets import data_files
from proteus_spot.infra.datasets import documents as data_documents
from proteus_spot.infra.datasets import examples as data_examples
from proteus_spot.infra.datasets import ratings as data_ratings
from proteus_spot.infra.datasets.formats.reading import Reading
from proteus_spot.psengine.apps.registry import kind_for

#: The arrays of one file, by name.
Arrays = Mapping[str, NDArray[Any]]


class Prepared(Protocol):
    """A source that was read, checked and split; nothing is written yet."""

    @property
    def rows(self) -> int:
        """Number of rows to train on; a row is an example, a rating or a document."""
        ...

    @property
    def heldout_rows(self) -> int:
        """Number of held-out rows."""
        ...

    @property
    def sizes(self) -> Mapping[str, float]:
        """Sizes of the set for applications, by the names of `psengine.apps.base.SIZES`; most are counts (int)."""
        ...

    @property
    def about(self) -> Mapping[str, Any]:
        """Further facts for the manifest, such as the labels; JSON values."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """How the source was read, where that may not be what its author expects; a line each."""
        ...

    def parts(self, seed: int) -> Iterator[Arrays]:
        """Yield the arrays of each partition; `read` was given their number."""
        ...

    def heldout(self) -> Arrays:
        """Return the arrays of the held-out part; the same for every seed."""
        ...


#: Reads a source for a number of partitions and an application (None: any); `InputError` if it cannot be used.
Reader = Callable[[str, int, str | None, Reading], Prepared]

KINDS: Mapping[str, Reader] = MappingProxyType(
    {
        "arrays": data_arrays.read,
        "examples": data_examples.read,
        "ratings": data_ratings.read,
        "documents": data_documents.read,
    }
)

#: The default built-in set of each kind, and the names of all built-in sets.
DEFAULT_SETS: Mapping[str, str] = MappingProxyType({"examples": "digits", "ratings": "ratings", "documents": "topics"})
BUILT_IN_SETS = frozenset({*data_files.BUILT_IN, *data_ratings.BUILT_IN, data_documents.TOPICS})


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
    """Return the absolute form of a path, for processes in other directories; a URL or a name unchanged."""
    return source if source in BUILT_IN_SETS or "://" in source else str(Path(source).absolute())
