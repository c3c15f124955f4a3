"""A job's input: a data set cut into partitions and a held-out part, written as blobs before the first node starts.

Every node reads the partitions it is given, never the whole. What is written depends on the arguments alone, so that a
second preparation of the same job finds its set and keeps it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from infra.blobs import Blobs, JobPaths, Manifest, npz_bytes
from infra.data_files import read_data
from infra.errors import InputError
from infra.examples import Examples, examples, hold_out

HELD_OUT = "heldout.npz"
#: Application -> how many classes it needs to learn anything; one that is not here takes any data.
_LEAST_CLASSES: Mapping[str, int] = MappingProxyType({"mlr": 2})


@dataclass(frozen=True, slots=True)
class DataSummary:
    """What was prepared. `rows` and `heldout_rows` count examples; `data_url` is where nodes find the parts.

    `classes` is 0 where the labels are numbers and no classes.
    """

    source: str
    data_url: str
    n_partitions: int
    rows: int
    heldout_rows: int
    features: int
    classes: int


def part_name(partition: int) -> str:
    """Return the file of a partition, as in ``part-00012.npz``."""
    return f"part-{partition:05d}.npz"


def prepare(
    blobs: Blobs, job_id: str, name_or_url: str, n_partitions: int, seed: int, app: str | None = None
) -> DataSummary:
    """Write the partitions of a data set for a job, or find them written.

    Each partition is ``part-00000.npz`` and so on with `x` (float32, rows x features), `y` (int32 classes from 0, or
    float32) and `ids` (int64, the row in the source); ``heldout.npz`` likewise. In place of `x`, sparse inputs have
    `x_data`, `x_indices`, `x_indptr` and `x_cols` (`psengine.apps.sparse.Csr`). A fifth of each class is held out, the
    same for every seed. Nothing is written before all is read and checked.

    Parameters
    ----------
    name_or_url : a built-in set (`digits`), or path or fsspec URL of a data file (`infra.data_files`).
    n_partitions : how many parts; their sizes differ by at most one row.
    seed : deals the rows to the parts.
    app : what will be trained; data that it cannot learn from are refused.

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
            _check_classes(name_or_url, manifest.about["classes"], app)
            return _summary(blobs, paths, manifest)
    train, heldout = _halves(name_or_url, n_partitions, app)
    about = wanted | {
        "rows": len(train),
        "heldout_rows": len(heldout),
        "features": train.x.shape[1],
        "classes": len(train.labels),
        "labels": list(train.labels),
    }
    manifest = blobs.write_set(paths.data, _files(train, heldout, n_partitions, seed), about)
    return _summary(blobs, paths, manifest)


def check_data(name_or_url: str, n_partitions: int, app: str | None = None) -> None:
    """Raise what `prepare` would raise of this source; nothing is written."""
    _halves(name_or_url, n_partitions, app)


def deal(n_rows: int, n_partitions: int, seed: int) -> list[np.ndarray]:
    """Return the rows of each partition: a seeded permutation cut into runs whose lengths differ by at most one."""
    return np.array_split(np.random.default_rng(seed).permutation(n_rows), n_partitions)


def _files(train: Examples, heldout: Examples, n_partitions: int, seed: int) -> Iterator[tuple[str, bytes]]:
    for partition, rows in enumerate(deal(len(train), n_partitions, seed)):
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


def _halves(source: str, n_partitions: int, app: str | None) -> tuple[Examples, Examples]:
    """Return what a source has to train on and what is held out, all of it checked."""
    table = read_data(source)
    whole = examples(source, table)
    _check_classes(source, len(whole.labels), app)
    train, heldout = hold_out(source, table, whole)
    if n_partitions > len(train):
        raise InputError(
            f"data {source}: has {len(train)} rows to train on, too few for {n_partitions} parts; want one a part"
        )
    return train, heldout


def _check_classes(source: str, classes: int, app: str | None) -> None:
    least = _LEAST_CLASSES.get(app or "", 0)
    if classes < least:
        what = "all rows have one label" if classes else "the labels are numbers with fractions, which are no classes"
        raise InputError(f"data {source}: {what}; {app} wants at least {least} classes")
