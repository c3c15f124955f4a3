"""The user's data, before a job is begun with them."""

from infra import data_files, datasets
from tasks.spec import JobSpec


def absolute_data(data: str) -> str:
    """Return a path as an absolute one: flows and machines have working directories of their own. Else as it is."""
    return data_files.absolute(data)


def check_data(spec: JobSpec) -> None:
    """Read the job's data as this machine sees them, and refuse what cannot be trained on; nothing is written.

    Raises
    ------
    InputError
        One line that names the file, the line in it where there is one, and the mend.
    """
    datasets.check_data(spec.training.data, spec.training.partitions, spec.training.app)
