"""The process of `proteus check`: a node that runs each task twice, and ends.

Run as `python -m proteus_spot.infra.nodes.check_main`.
Exit code 0: the report was written. 1: failed. 2: bad options.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from proteus_spot.infra.nodes.main import set_up


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return the options; a bad one ends the process with exit code 2 and one line."""
    parser = argparse.ArgumentParser(
        prog="python -m proteus_spot.infra.nodes.check_main", description="A check of an application."
    )
    parser.add_argument("--config", type=Path, required=True, help="JSON file of the job's configuration")
    parser.add_argument("--blob", required=True, help="fsspec URL of the blob store, with the job's data and code")
    parser.add_argument("--report", type=Path, required=True, help="JSON file to write")
    parser.add_argument("--backwards", action="store_true", help="run the last partition first")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Check the application; return the exit code."""
    options = parse(arguments)
    set_up()
    from proteus_spot.infra.applications.code_shipping import JobCode
    from proteus_spot.infra.clock import SystemClock
    from proteus_spot.infra.errors import ProteusError
    from proteus_spot.infra.settings import load_settings
    from proteus_spot.infra.storage.blobs import open_blobs
    from proteus_spot.infra.storage.job_paths import HELD_OUT, JobPaths, part_name
    from proteus_spot.psengine.application_check import check_application
    from proteus_spot.psengine.apps.base import DescribesClocks
    from proteus_spot.psengine.apps.registry import resolve
    from proteus_spot.psengine.config import JobConfig, JobError

    try:
        config = JobConfig.from_dict(json.loads(options.config.read_text()))
        blobs = open_blobs(load_settings().model_copy(update={"blob_url": options.blob}))
        with tempfile.TemporaryDirectory(prefix="proteus-code-") as directory:
            JobCode(blobs, config.job_id, Path(directory)).load(config)
            app = resolve(config.app, config.app_params)
            prefix = JobPaths(config.job_id).data
            parts = [blobs.read_npz(f"{prefix}/{part_name(number)}") for number in range(config.n_partitions)]
            report = check_application(
                app, parts, blobs.read_npz(f"{prefix}/{HELD_OUT}"), config.seed, options.backwards
            )
    except (JobError, ProteusError) as error:
        found: dict[str, Any] = {"refused": str(error)}
    else:
        found = {"faults": report.faults, "digests": dict(report.digests)}
        if not report.faults and not options.backwards and isinstance(app, DescribesClocks):
            found["notes"] = app.describe(app.prepare(parts[0]), SystemClock().now_s)
    options.report.write_text(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
