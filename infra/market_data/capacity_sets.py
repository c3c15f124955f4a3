"""Sets of records of availability: a folder of counts by zone with prices, or of files of one market each."""

import csv
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np

from proteus_spot.bidding.backtest.capacity.record import CapacityRecord, from_rows
from proteus_spot.bidding.market.traces import Int64s
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.files import read_text
from proteus_spot.infra.market_data.capacity_files import read_steps

#: The files of a set of counts.
COUNTS, PRICES = "launched.csv.gz", "prices.csv"
#: Machines of the priced type that hold one GPU each.
_GPUS = 8


@dataclass(frozen=True)
class MarketRecord:
    """When one machine of a market could be had: a count at each step."""

    name: str
    step_s: int
    there: Int64s


def find_set(name: str) -> Path:
    """Return the folder of a set: a path, or the name of a folder in ``availability`` of $PROTEUS_TRACES.

    Raises
    ------
    InputError
        If there is none.
    """
    folder = Path(name)
    if folder.is_dir():
        return folder
    root = Path(os.environ.get("PROTEUS_TRACES", "")) / "availability"
    if "PROTEUS_TRACES" in os.environ and (root / name).is_dir():
        return root / name
    known = f"; there are {', '.join(sorted(one.name for one in root.iterdir()))}" if root.is_dir() else ""
    raise InputError(
        f"--availability-set {name}: is not a folder, nor one of $PROTEUS_TRACES/availability{known}; name a folder"
    )


def has_counts(folder: Path) -> bool:
    """Return whether the set counts machines by zone."""
    return (folder / COUNTS).is_file()


def read_counts(folder: Path) -> CapacityRecord:
    """Return the record of a set that counts machines by zone.

    Raises
    ------
    InputError
        If a file cannot be used; it names the row.
    """
    prices = {}
    for where, row in _rows(folder / PRICES, ("region", "spot_usd_per_h", "on_demand_usd_per_h")):
        pair = tuple(_number(where, row, name) / _GPUS for name in ("spot_usd_per_h", "on_demand_usd_per_h"))
        prices[row["region"]] = (pair[0], pair[1])
    times, zones, counts = [], [], []
    for where, row in _rows(folder / COUNTS, ("timestamp", "zone", "launched")):
        try:
            times.append(int(datetime.fromisoformat(row["timestamp"]).timestamp()))
        except ValueError:
            raise InputError(f"{where}: timestamp is {row['timestamp']!r}; write 2025-10-04T00:10:00Z") from None
        zones.append(row["zone"])
        counts.append(int(_number(where, row, "launched")))
    try:
        return from_rows(times, zones, counts, prices)
    except ValueError as error:
        raise InputError(f"{folder}: {error}; fetch {COUNTS} and {PRICES} again") from None


def read_markets(folder: Path) -> list[MarketRecord]:
    """Return the records of a set of files of one market each, by name.

    Raises
    ------
    InputError
        If there is none, or one cannot be used.
    """
    paths = sorted(folder.glob("*.json"))
    if not paths:
        raise InputError(f"{folder}: has neither {COUNTS} nor ZONE_TYPE.json; name a folder of records of availability")
    return [_market(path) for path in paths]


def _market(path: Path) -> MarketRecord:
    counts, step_s = read_steps(path)
    if not counts:
        raise InputError(f"{path}: has no step; fetch the file again")
    return MarketRecord(path.stem, step_s, np.array(counts).astype(np.int64))


def _rows(path: Path, wanted: tuple[str, ...]) -> Iterator[tuple[str, dict[str, str]]]:
    reader = csv.DictReader(read_text(path).splitlines())
    if missing := [name for name in wanted if name not in (reader.fieldnames or ())]:
        raise InputError(f"{path}: has no column {missing[0]}; want {', '.join(wanted)}")
    for number, row in enumerate(reader, start=2):
        if any(row[name] is None for name in wanted):
            raise InputError(f"{path}: row {number}: is cut short; fetch the file again")
        yield f"{path}: row {number}", row


def _number(where: str, row: dict[str, str], name: str) -> float:
    try:
        value = float(row[name])
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise InputError(f"{where}: {name} is {row[name]!r}; write a number of 0 or more")
    return value
