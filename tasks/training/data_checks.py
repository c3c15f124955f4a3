"""Checks of the user's data before a job begins. Imports no Prefect: `proteus run` and `train` check data first."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from proteus_spot.infra.applications.code_files import UnreadableCode
from proteus_spot.infra.applications.net_source import NetSource, net_source
from proteus_spot.infra.datasets import kinds as data_kinds
from proteus_spot.infra.datasets import prepare as datasets
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.extras import need_extra
from proteus_spot.infra.storage.blobs import Blobs
from proteus_spot.infra.storage.job_paths import JobPaths
from proteus_spot.psengine.apps.registry import kind_for
from proteus_spot.studies.job_spec import JobSpec, Training
from proteus_spot.tasks.training.application_checks import (
    NamedApplication,
    application,
    check_sizes_here,
    default_params,
)

#: Default number of partitions.
PARTITIONS: int = Training.model_fields["partitions"].default


def net_of(training: Training) -> NetSource | None:
    """Return what the text of an application says of it as a net; None if it is none.

    Raises
    ------
    InputError
        As `net_source`; or the net's library is not installed, or the job has what that of a net cannot have.
    """
    net = net_source(training.app, training.code, training.app_params)
    if net is not None:
        _check_net(training, net)
    return net


def _check_net(training: Training, net: NetSource) -> None:
    """Refuse a net whose library is not installed, and what a job of a net cannot have."""
    if net.library:
        need_extra(net.library, f"app {training.app}")
    if training.partitions not in (PARTITIONS, net.workers):
        raise InputError(
            f"partitions: is {training.partitions}, and {training.app} has {net.workers} workers, and a partition for "
            "each; leave it out, or set workers"
        )
    if training.staleness:
        raise InputError(f"staleness: is {training.staleness}, and the workers of a net read no stale model; want 0")
    if training.nan != "fail":
        raise InputError(
            f"nan: is {training.nan}, and {training.app} is a net; want fail, and its setting nan = 'skip'"
        )


def asked_training(app: str, asked: Mapping[str, Any], partitions: int = PARTITIONS) -> dict[str, Any]:
    """Return the fields of a training, filled in by what its application and its data say.

    Parameters
    ----------
    asked : the values of options, by field.
    partitions : their default number.

    Raises
    ------
    InputError
        One line that names the option and the fix. Files are checked later.
    """
    chosen = application("APP", app, asked["code"] or None, asked["app_params"])
    data = asked["data"] or data_kinds.DEFAULT_SETS[kind_for(app)]
    return {
        **asked,
        "app": app,
        "code": chosen.code,
        "app_params": {**default_params(app, data, asked["seed"]), **chosen.params},
        "data": data_kinds.absolute(data),
        "partitions": partitions_of(chosen, asked.get("partitions"), partitions),
    }


def partitions_of(chosen: NamedApplication, given: int | None, default: int) -> int:
    """Return the number of partitions of an application; a net has as many as it has workers.

    Raises
    ------
    InputError
        If `--partitions` was given for a net, or its file is not one.
    """
    try:
        net = net_source(chosen.app, chosen.code, chosen.params)
    except UnreadableCode:  # a job that has begun goes on without it; any other is refused when its code is shipped
        net = None
    if net is None:
        return default if given is None else given
    if given is not None:
        raise InputError(
            f"--partitions {given}: {chosen.app} has {net.workers} workers, and a partition for each; leave it out, "
            "or set workers"
        )
    return net.workers


def check_data(spec: JobSpec) -> tuple[str, ...]:
    """Read the job's data on this machine, and refuse data that cannot be trained on; nothing is written.

    Returns a line for each way in which they were read that their author may not expect.

    Raises
    ------
    InputError
        One line that names the file, the line in it where there is one, and the fix.
    """
    training = spec.training
    fits = partial(check_sizes_here, training)
    net = net_of(training)
    return datasets.check_data(
        training.data,
        training.partitions if net is None else net.workers,
        training.app,
        fits,
        training.standardizes,
        training.reading,
        None if net is None else "arrays",
    )


def has_same_data(blobs: Blobs, job_id: str, training: Training) -> bool:
    """Return whether the data of a job have only moved: the parts of its first data are those of the file named now.

    Raises
    ------
    InputError
        One line that names the file, the line in it where there is one, and the fix.
    """
    partitions, kind = _cut(blobs, job_id, training)
    return datasets.has_moved(
        blobs, job_id, training.data, partitions, training.seed, training.app, training.reading, kind
    )


def cut_data(blobs: Blobs, job_id: str, training: Training, fits: datasets.SizesCheck) -> datasets.DataSummary:
    """Write the partitions of a job's data to the blob store, or find them there.

    `fits` raises if the sizes of the data do not fit the application's parameters.

    Raises
    ------
    InputError
        One line that names the file, the line in it where there is one, and the fix.
    """
    partitions, kind = _cut(blobs, job_id, training)
    return datasets.prepare(
        blobs,
        job_id,
        training.data,
        partitions,
        training.seed,
        training.app,
        fits,
        training.standardizes,
        training.reading,
        kind,
    )


def _cut(blobs: Blobs, job_id: str, training: Training) -> tuple[int, str | None]:
    """Return the number of partitions, and the kind of data, None: by the application's name."""
    try:
        net = net_of(training)
    except UnreadableCode:  # a job that has begun goes on with the code that it began with
        manifest = blobs.manifest(JobPaths(job_id).data)
        if manifest is None or manifest.about.get("kind") != "arrays":
            return training.partitions, None
        return int(manifest.about["n_partitions"]), "arrays"
    return (training.partitions, None) if net is None else (net.workers, "arrays")
