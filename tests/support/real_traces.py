"""The folder of real traces that PROTEUS_TRACES names; tests that need it are skipped without it."""

import os
from pathlib import Path

import pytest

from proteus_spot.bidding.market.model import Market


def traces_folder() -> Path:
    """Return the folder; skip the test without one."""
    if "PROTEUS_TRACES" not in os.environ:
        pytest.skip("PROTEUS_TRACES names no folder of real traces")
    return Path(os.environ["PROTEUS_TRACES"])


def availability_files(name: str) -> list[tuple[Market, Path]]:
    """Return the markets of a set of availability traces, each with its file, ``ZONE_TYPE.json``."""
    paths = sorted((traces_folder() / "availability" / name).glob("*.json"))
    return [(Market(path.stem.partition("_")[2], path.stem.partition("_")[0]), path) for path in paths]
