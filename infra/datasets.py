"""A job's input: a data set cut into partitions and a held-out part, written as blobs before the first node starts.

Every node reads the partitions it is given, never the whole. What is written depends on the arguments alone, so that a
second preparation of the same job finds its set and keeps it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import fsspec
import numpy as np

from infra.blobs import BlobError, Blobs, JobPaths, Manifest, npz_arrays, npz_bytes
from infra.errors import InputError

HELD_OUT = "heldout.npz"
_HELD_OUT_SHARE = 0.2
#: The split is the same for every job, so that accuracies can be compared.
_SPLIT_SEED = 0


@dataclass(frozen=True, slots=True)
class DataSummary:
    """What was prepared. `rows` and `heldout_rows` count examples; `data_url` is where nodes find the parts."""

    source: str
    data_url: str
    n_partitions: int
    rows: int
    heldout_rows: int
    features: int
    classes: int


@dataclass(frozen=True, slots=True)
class _Examples:
    """`x` float32 of shape (rows, features), `y` int32 of shape (rows,), `ids` int64: the row in the source."""

    x: np.ndarray
    y: np.ndarray
    ids: np.ndarray

    def take(self, rows: np.ndarray) -> "_Examples":
        return _Examples(self.x[rows], self.y[rows], self.ids[rows])

    def arrays(self) -> dict[str, np.ndarray]:
        return {"x": self.x, "y": self.y, "ids": self.ids}


def part_name(partition: int) -> str:
    """Return the file of a partition, as in ``part-00012.npz``."""
    return f"part-{partition:05d}.npz"


def prepare(blobs: Blobs, job_id: str, name_or_url: str, n_partitions: int, seed: int) -> DataSummary:
    """Write the partitions of a data set for a job, or find them written.

    Each partition is ``part-00000.npz`` and so on with `x` (float32, rows x features), `y` (int32) and `ids` (int64, the
    row in the source); ``heldout.npz`` likewise. A fifth of each class is held out, the same for every seed.

    Parameters
    ----------
    name_or_url : a built-in set (`digits`), or the URL of an .npz file with `x` and `y`.
    n_partitions : how many parts; their sizes differ by at most one row.
    seed : deals the rows to the parts.

    Raises
    ------
    InputError
        For an unknown name, a file that cannot be read or used, more partitions than rows, or a job whose data were
        prepared otherwise.
    """
    paths = JobPaths(job_id)
    if n_partitions < 1:
        raise InputError(f"data of {job_id}: {n_partitions} partitions; want at least 1")
    wanted = {"source": name_or_url, "n_partitions": n_partitions, "seed": seed}
    manifest = blobs.manifest(paths.data)
    if manifest is not None:
        found = {name: manifest.about.get(name) for name in wanted}
        if found != wanted:
            raise InputError(
                f"data of {job_id}: {blobs.url_of(paths.data)} was prepared from {found}, not {wanted}; "
                "use another job id, or remove it"
            )
        if _whole(blobs, paths.data, manifest):
            return _summary(blobs, paths, manifest)
    train, heldout = _split(_load(name_or_url), name_or_url)
    if n_partitions > len(train.y):
        raise InputError(f"data {name_or_url}: has {len(train.y)} rows to train on, too few for {n_partitions} parts")
    about = wanted | {
        "rows": len(train.y),
        "heldout_rows": len(heldout.y),
        "features": train.x.shape[1],
        "classes": int(max(train.y.max(), heldout.y.max())) + 1,
    }
    manifest = blobs.write_set(paths.data, _files(train, heldout, n_partitions, seed), about)
    return _summary(blobs, paths, manifest)


def deal(n_rows: int, n_partitions: int, seed: int) -> list[np.ndarray]:
    """Return the rows of each partition: a seeded permutation cut into runs whose lengths differ by at most one."""
    return np.array_split(np.random.default_rng(seed).permutation(n_rows), n_partitions)


def _files(train: _Examples, heldout: _Examples, n_partitions: int, seed: int) -> Iterator[tuple[str, bytes]]:
    for partition, rows in enumerate(deal(len(train.y), n_partitions, seed)):
        yield part_name(partition), npz_bytes(train.take(rows).arrays())
    yield HELD_OUT, npz_bytes(heldout.arrays())


def _whole(blobs: Blobs, prefix: str, manifest: Manifest) -> bool:
    # Sizes, not digests: this runs at every start of a flow, and must not read the whole set back.
    return all(blobs.size(f"{prefix}/{name}") == record.size for name, record in manifest.files.items())


def _summary(blobs: Blobs, paths: JobPaths, manifest: Manifest) -> DataSummary:
    about = manifest.about
    return DataSummary(
        source=about["source"],
        data_url=blobs.url_of(paths.data),
        n_partitions=about["n_partitions"],
        rows=about["rows"],
        heldout_rows=about["heldout_rows"],
        features=about["features"],
        classes=about["classes"],
    )


def _digits() -> tuple[np.ndarray, np.ndarray]:
    try:
        from sklearn.datasets import load_digits  # heavy, and not on a node
    except ImportError:
        raise InputError("data digits: needs scikit-learn; install proteus[local]") from None
    x, y = load_digits(return_X_y=True)
    return x / 16.0, y


#: Name -> loader of (x, y).
BUILT_IN: Mapping[str, Callable[[], tuple[np.ndarray, np.ndarray]]] = MappingProxyType({"digits": _digits})


def _load(name_or_url: str) -> _Examples:
    if name_or_url in BUILT_IN:
        x, y = BUILT_IN[name_or_url]()
    elif name_or_url.endswith(".npz"):
        x, y = _read_npz(name_or_url)
    else:
        raise InputError(
            f"data {name_or_url!r}: unknown; known are {', '.join(sorted(BUILT_IN))}, or the URL of an .npz"
        )
    return _checked(name_or_url, np.asarray(x), np.asarray(y))


def _read_npz(url: str) -> tuple[np.ndarray, np.ndarray]:
    try:
        with fsspec.open(url, "rb") as file:
            arrays = npz_arrays(file.read(), url)
    except (OSError, ValueError, ImportError) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise InputError(f"data {url}: cannot be read: {reason}") from None
    except BlobError as error:
        raise InputError(f"data {error}") from None
    if missing := [name for name in ("x", "y") if name not in arrays]:
        raise InputError(f"data {url}: has no array {missing[0]!r}; want x (rows, features) and y (rows)")
    return arrays["x"], arrays["y"]


def _checked(source: str, x: np.ndarray, y: np.ndarray) -> _Examples:
    if x.ndim != 2 or y.ndim != 1 or len(x) != len(y) or not x.shape[1]:
        raise InputError(
            f"data {source}: x of shape {x.shape} and y of shape {y.shape}; want (rows, features), (rows,)"
        )
    if x.dtype.kind not in "fiub" or y.dtype.kind not in "iu":
        raise InputError(f"data {source}: x is {x.dtype} and y is {y.dtype}; want numbers and whole numbers")
    if not len(y) or y.min() < 0 or y.max() > np.iinfo(np.int32).max:
        raise InputError(f"data {source}: y must hold classes 0, 1, …, one a row")
    x = x.astype(np.float32)
    if not (fine := np.isfinite(x).all(axis=1)).all():
        raise InputError(f"data {source}: row {int(np.argmin(fine))} of x is not finite")
    return _Examples(x, y.astype(np.int32), np.arange(len(y), dtype=np.int64))


def _split(examples: _Examples, source: str) -> tuple[_Examples, _Examples]:
    try:
        from sklearn.model_selection import train_test_split  # heavy, and not on a node
    except ImportError:
        raise InputError(f"data {source}: needs scikit-learn to hold a part out; install proteus[local]") from None
    try:
        train, heldout = train_test_split(
            np.arange(len(examples.y)), test_size=_HELD_OUT_SHARE, stratify=examples.y, random_state=_SPLIT_SEED
        )
    except ValueError as error:
        raise InputError(f"data {source}: a fifth of each class cannot be held out: {error}") from None
    return examples.take(train), examples.take(heldout)
