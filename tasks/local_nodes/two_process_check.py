"""Check of an application in two processes of this machine, on its real data: `proteus check`."""

import json
import os
import signal
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from proteus_spot.infra.applications.code_shipping import ship_code
from proteus_spot.infra.child_process import Child
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.processes.surroundings import python_module
from proteus_spot.infra.settings import load_settings
from proteus_spot.infra.storage.blobs import open_blobs
from proteus_spot.infra.urls import file_url
from proteus_spot.studies.job_spec import Training
from proteus_spot.tasks.training.application_checks import (
    check_application,
    check_sizes_here,
)
from proteus_spot.tasks.training.data_checks import asked_training, cut_data
from proteus_spot.tasks.training.job_config import job_config

#: Digits of the seeds with which the two processes scatter the texts in their sets.
_HASH_SEEDS = ("1", "2")
#: Default number of partitions.
_PARTITIONS = 4


def find_faults(training: Training) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the faults of an application, as two processes find them (`psengine.application_check`), and notes on it.

    Each is a line. Only an application without a fault has notes.

    Data and code are prepared as for a job, in a directory that is removed at the end.

    Raises
    ------
    InputError
        If the job that `training` describes would be refused: bad data, parameters or code.
    """
    check_application(training)
    with tempfile.TemporaryDirectory(prefix="proteus-check-") as name:
        directory = Path(name)
        url = file_url(directory / "blobs")
        blobs = open_blobs(load_settings().model_copy(update={"blob_url": url}))
        data = cut_data(blobs, "check", training, partial(check_sizes_here, training))
        digest = ship_code(blobs, "check", training.app, training.code)
        config = directory / "config.json"
        config.write_text(json.dumps(job_config("check", training, data, 1, code_sha256=digest).to_dict()))
        first, second = _reports(directory, config, url)
        return compare(first, second), tuple(first.get("notes", ()))


def compare(first: Mapping[str, Any], second: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the faults that two processes found, each once, and the first call whose bits differ between them.

    What comes after that call differs because of it.
    """
    faults = list(dict.fromkeys([*first["faults"], *second["faults"]]))
    others = second["digests"]
    differing = [call for call, bits in first["digests"].items() if others.get(call, bits) != bits]
    if differing and not any(fault.partition(",")[0] == differing[0].partition(",")[0] for fault in faults):
        faults.append(
            f"{differing[0]}: other bits in another process; keep nothing between calls, and use nothing that differs "
            "by process, as the order of a set"
        )
    return tuple(faults)


def _reports(directory: Path, config: Path, url: str) -> list[Mapping[str, Any]]:
    """Return what two processes report, which run at the same time."""
    command = python_module("proteus_spot.infra.nodes.check_main", "--config", str(config), "--blob", url)
    with ExitStack() as stack:
        children = []
        for seed, backwards in zip(_HASH_SEEDS, ([], ["--backwards"]), strict=True):
            report = directory / f"report-{seed}.json"
            environment = {**os.environ, "PYTHONHASHSEED": seed, "TMPDIR": str(directory)}
            child = Child([*command, "--report", str(report), *backwards], directory / f"check-{seed}.log", environment)
            children.append((stack.enter_context(child), report))
        return [report_of(child, report) for child, report in children]


def report_of(child: Child, report: Path) -> Mapping[str, Any]:
    """Return what a process reports when it has ended; one that was killed has a fault, and nothing else."""
    code = child.wait()
    if code or not report.exists():
        ended = f"signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"exit code {code}"
        return {"faults": [f"the process ended with {ended}: {child.cause()}"], "digests": {}}
    found: dict[str, Any] = json.loads(report.read_text())
    if "refused" in found:
        raise InputError(found["refused"])
    return found


def checked_training(app: str, asked: Mapping[str, Any]) -> Training:
    """Return the training to check of an application; `asked` are values of options, by field."""
    # It needs an end; a number of clocks would say how long the job is, which is not known.
    return Training(**asked_training(app, asked, _PARTITIONS), hours=1.0)
