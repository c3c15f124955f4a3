"""The blob names of a sweep's trials.

A sweep's blobs lie under the prefix of a job of the same id (`JobPaths`): ``jobs/<sweep>/code`` as a job's, the data
file in ``sweep-data``, and a folder for each trial. A deployment is one order for one trial; its order id names it.
"""

import re
from dataclasses import dataclass

from proteus_spot.infra.errors import InputError
from proteus_spot.infra.storage.job_paths import JobPaths

_ORDER = re.compile(r"[a-z0-9][a-z0-9-]{0,127}")
_STATE = re.compile(r"(\d{9})-([a-z0-9][a-z0-9-]{0,127})")


@dataclass(frozen=True, slots=True)
class SweepPaths:
    """The names of what all trials of a sweep share.

    Raises
    ------
    InputError
        For an invalid sweep id (see `JobPaths`).
    """

    sweep_id: str

    def __post_init__(self) -> None:
        JobPaths(self.sweep_id)

    @property
    def code(self) -> str:
        """The set of the file of the user's trial; absent for an application of the engine."""
        return JobPaths(self.sweep_id).code

    @property
    def requirements(self) -> str:
        """The set of the requirements file; absent if the trial needs nothing else."""
        return f"{JobPaths(self.sweep_id).root}/requirements"

    @property
    def data(self) -> str:
        """The set of the data file; absent without data. An application of the engine reads `JobPaths.data`."""
        return f"{JobPaths(self.sweep_id).root}/sweep-data"

    @property
    def best(self) -> str:
        """The set of the best trial's state, with its settings in the manifest."""
        return f"{JobPaths(self.sweep_id).root}/best"

    @property
    def trials(self) -> str:
        """Prefix of the trials."""
        return f"{JobPaths(self.sweep_id).root}/trials"

    def trial(self, number: int) -> "TrialPaths":
        """Return the names of a trial, counted from 0."""
        return TrialPaths(self.sweep_id, number)


@dataclass(frozen=True, slots=True)
class TrialPaths:
    """The names of a trial's blobs and sets. Trials count from 0.

    Raises
    ------
    InputError
        For an invalid sweep id, or a number below 0.
    """

    sweep_id: str
    number: int

    def __post_init__(self) -> None:
        JobPaths(self.sweep_id)
        if self.number < 0:
            raise InputError(f"trial {self.number} of {self.sweep_id}: trials count from 0")

    @property
    def root(self) -> str:
        """Prefix of the trial."""
        return f"{SweepPaths(self.sweep_id).trials}/{self.number:04d}"

    @property
    def setting(self) -> str:
        """JSON with the trial's parameters, seed, steps and metric, written by the flow."""
        return f"{self.root}/setting.json"

    @property
    def deployments(self) -> str:
        """Prefix of the trial's deployments."""
        return f"{self.root}/deployments"

    @property
    def states(self) -> str:
        """Prefix of the uploaded states, each a set of files."""
        return f"{self.root}/states"

    def orders(self, deployment: str) -> str:
        """JSON with the step to train to and whether to pause, written by the flow."""
        return f"{self.deployments}/{_check_order(deployment)}/orders.json"

    def report(self, deployment: str) -> str:
        """JSON with what a deployment has reported, written by the node."""
        return f"{self.deployments}/{_check_order(deployment)}/report.json"

    def state(self, step: int, deployment: str) -> str:
        """Return the prefix of the set of the state after `step`, as a deployment uploaded it."""
        return f"{self.states}/{step:09d}-{_check_order(deployment)}"


def state_step(name: str) -> int | None:
    """Return the step of a state by the last part of its prefix; None for another name."""
    match = _STATE.fullmatch(name.rpartition("/")[2])
    return None if match is None else int(match[1])


def _check_order(deployment: str) -> str:
    if not _ORDER.fullmatch(deployment):
        raise InputError(f"deployment {deployment!r}: want an order id of lower-case letters, digits and dashes")
    return deployment
