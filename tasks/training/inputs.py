"""Checks of the user's data before a job begins. Imports no Prefect: `proteus run` and `train` check data first."""

from functools import partial

from proteus_spot.infra.datasets import kinds as data_kinds
from proteus_spot.infra.datasets import prepare as datasets
from proteus_spot.infra.storage.blobs import Blobs
from proteus_spot.tasks.job_spec import JobSpec, Training
from proteus_spot.tasks.training.application_checks import check_sizes_here


def default_data(app: str) -> str:
    """Return the built-in set that an application trains on if the user names no data."""
    return data_kinds.DEFAULT_SETS[data_kinds.kind_for(app)]


def check_data(spec: JobSpec) -> tuple[str, ...]:
    """Read the job's data on this machine, and refuse data that cannot be trained on; nothing is written.

    Returns a line for each way in which they were read that their author may not expect.

    Raises
    ------
    InputError
        One line that names the file, the line in it where there is one, and the mend.
    """
    training = spec.training
    fits = partial(check_sizes_here, training)
    return datasets.check_data(
        training.data, training.partitions, training.app, fits, training.standardizes, training.reading
    )


def cut_data(blobs: Blobs, job_id: str, training: Training, fits: datasets.SizesCheck) -> datasets.DataSummary:
    """Write the partitions of a job's data to the blob store, or find them there.

    `fits` raises if the sizes of the data do not fit the application's parameters.

    Raises
    ------
    InputError
        One line that names the file, the line in it where there is one, and the mend.
    """
    return datasets.prepare(
        blobs,
        job_id,
        training.data,
        training.partitions,
        training.seed,
        training.app,
        fits,
        training.standardizes,
        training.reading,
    )
