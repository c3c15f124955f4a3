"""Prepare a job's data: write partitions and a held-out part as blobs before the first node starts.

A node reads only its partitions. What is written depends on the arguments alone, so a second preparation of the same
job finds the set and keeps it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from proteus_spot.infra.datasets.examples import ExampleSet, check_classes
from proteus_spot.infra.datasets.formats.reading import PLAIN, Reading
from proteus_spot.infra.datasets.kinds import KINDS, Prepared
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.storage.blobs import Blobs, Manifest, npz_bytes
from proteus_spot.infra.storage.job_paths import HELD_OUT, JobPaths, part_name
from proteus_spot.psengine.apps.registry import kind_for


@dataclass(frozen=True, slots=True)
class DataSummary:
    """The prepared data of a job.

    `sizes` and `scales` are passed to the applications (`psengine.apps.base.SIZES`); `notes` say how the source was
    read, where that may not be what its author expects, a line each.
    """

    source: str
    data_url: str
    n_partitions: int
    rows: int
    heldout_rows: int
    sizes: Mapping[str, float]
    notes: tuple[str, ...] = ()
    scales: Mapping[str, Any] = field(default_factory=dict)


#: Refuses a set by its sizes: raises `InputError`.
SizesCheck = Callable[[Mapping[str, float]], None]


def prepare(
    blobs: Blobs,
    job_id: str,
    name_or_url: str,
    n_partitions: int,
    seed: int,
    app: str | None = None,
    check_sizes: SizesCheck | None = None,
    standardize: bool | None = False,
    how: Reading = PLAIN,
    kind: str | None = None,
) -> DataSummary:
    """Write the partitions of a data set for a job unless they are written.

    The partitions are ``part-00000.npz`` and so on; ``heldout.npz`` is the held-out part, the same for every seed.
    Their arrays are those of the kind of data (`infra.datasets.kinds`) that `app` learns from. Nothing is written
    before all data are read and checked.

    Parameters
    ----------
    name_or_url : a built-in set (`digits`), or path or fsspec URL of a data file (`infra.datasets.data_files`).
    n_partitions : how many parts, of about equal size.
    seed : deals the rows to the parts.
    app : what will be trained; it says the kind of data, and those that it cannot learn from are refused.
    check_sizes : checks the sizes of the set before anything is written.
    standardize : whether mean and standard deviation of the inputs are taken, for labelled examples. None: where they
        are dense.
    how : how a table of examples is to be read.
    kind : kind of data; None: that of a built-in application, or labelled examples.

    Raises
    ------
    InputError
        For an unknown name, a file that cannot be read or used, more partitions than rows, or a job whose data were
        prepared with other arguments. A file that has moved is not another one.
    """
    paths = JobPaths(job_id)
    if n_partitions < 1:
        raise InputError(f"data of {job_id}: {n_partitions} partitions; want at least 1")
    kind = kind or kind_for(app)
    wanted = {"source": name_or_url, "kind": kind, "n_partitions": n_partitions, "seed": seed}
    wanted |= {"standardize": True} if standardize else {}
    wanted |= {"label": how.label} if how.label else {}
    wanted |= {"empty": how.empty} if how.empty != PLAIN.empty else {}
    manifest = blobs.manifest(paths.data)
    if manifest is not None:
        found = {name: manifest.about.get(name) for name in wanted}
        if found != wanted and not (
            found | {"source": name_or_url} == wanted
            and has_moved(blobs, job_id, name_or_url, n_partitions, seed, app, how, kind)
        ):
            raise InputError(
                f"data of {job_id}: {blobs.url_of(paths.data)} was prepared from {found}, not {wanted}; "
                "use another job id, or remove it"
            )
        if found == wanted and _whole(blobs, paths.data, manifest):
            if kind == "examples":
                check_classes(name_or_url, manifest.about["sizes"]["n_classes"], app)
            return _summary(blobs, paths, manifest)
    data = KINDS[kind](name_or_url, n_partitions, app, how)
    if check_sizes is not None:
        check_sizes(data.sizes)
    about = wanted | {"rows": data.rows, "heldout_rows": data.heldout_rows, "sizes": dict(data.sizes), **data.about}
    about["notes"] = list(data.notes)
    about |= _scales(data, standardize)
    manifest = blobs.write_set(paths.data, _files(data, seed), about)
    return _summary(blobs, paths, manifest)


def has_moved(
    blobs: Blobs,
    job_id: str,
    name_or_url: str,
    n_partitions: int,
    seed: int,
    app: str | None = None,
    how: Reading = PLAIN,
    kind: str | None = None,
) -> bool:
    """Return whether a job was prepared from what `name_or_url` holds, under another name or in another place.

    Raises
    ------
    InputError
        As `prepare`, for a file that cannot be read or used.
    """
    manifest = blobs.manifest(JobPaths(job_id).data)
    if manifest is None or manifest.about.get("source") == name_or_url:
        return False
    data = KINDS[kind or kind_for(app)](name_or_url, n_partitions, app, how)
    written = {name: record.sha256 for name, record in manifest.files.items()}
    return {name: sha256(part).hexdigest() for name, part in _files(data, seed)} == written


def check_data(
    name_or_url: str,
    n_partitions: int,
    app: str | None = None,
    check_sizes: SizesCheck | None = None,
    standardize: bool | None = False,
    how: Reading = PLAIN,
    kind: str | None = None,
) -> tuple[str, ...]:
    """Raise what `prepare` would raise of this source; return the notes of it. Nothing is written."""
    data = KINDS[kind or kind_for(app)](name_or_url, n_partitions, app, how)
    if check_sizes is not None:
        check_sizes(data.sizes)
    _scales(data, standardize)
    return data.notes


def _scales(data: Prepared, standardize: bool | None) -> dict[str, Any]:
    if standardize is False or not isinstance(data, ExampleSet):
        return {}
    return {"scales": data.scales(standardize)}


def _files(data: Prepared, seed: int) -> Iterator[tuple[str, bytes]]:
    for partition, arrays in enumerate(data.parts(seed)):
        yield part_name(partition), npz_bytes(arrays)
    yield HELD_OUT, npz_bytes(data.heldout())


def _whole(blobs: Blobs, prefix: str, manifest: Manifest) -> bool:
    # Sizes, not digests: this runs at every start of a flow and must not read the set back.
    return all(blobs.size(f"{prefix}/{name}") == record.size for name, record in manifest.files.items())


def _summary(blobs: Blobs, paths: JobPaths, manifest: Manifest) -> DataSummary:
    about = manifest.about
    return DataSummary(
        source=about["source"],
        data_url=blobs.url_of(paths.data),
        n_partitions=about["n_partitions"],
        rows=about["rows"],
        heldout_rows=about["heldout_rows"],
        sizes=about["sizes"] | ({"job_seed": about["seed"]} if about["kind"] == "arrays" else {}),
        notes=tuple(about["notes"]),
        scales=about.get("scales", {}),
    )
