"""The state of a simulated market in a file, from which a later run continues; no time passes in between.

The file is replaced whenever an instance has changed, before the buyer gets the answer. Instances that were alive are
alive again when it is read: their machines boot again, and every due change happens at its own second.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from proteus_spot.bidding.market.model import EndCause, LaunchRequest, Market
from proteus_spot.bidding.market.traces import Trace
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.simulated_ec2.held_instances import Boot, HeldInstance, LaunchOptions

SCHEMA = 2


@dataclass(frozen=True, slots=True)
class SimulatedInstance:
    """The stored state of one instance; `ended_at_s` is None while it lives.

    `boots` holds (start, runs, stopped) of each boot, `fate` (evicted, marked, announced eviction).
    """

    instance_id: str
    request: LaunchRequest
    launched_at_s: int
    ended_at_s: int | None
    end_cause: EndCause | None
    end_reason: str
    options: LaunchOptions
    boots: tuple[tuple[int, int | None, int | None], ...]
    fate: tuple[int | None, int | None, int | None]


@dataclass(frozen=True, slots=True)
class MarketState:
    """What a market has sold, in order, at market time `now_s`; `prices` is the digest of its traces."""

    now_s: int
    seed: str
    prices: str
    instances: tuple[SimulatedInstance, ...]


def stored_instance(held: HeldInstance) -> SimulatedInstance:
    """Return what is stored of an instance."""
    return SimulatedInstance(
        held.instance_id,
        held.request,
        held.launched_at_s,
        held.ended_at_s,
        held.end_cause,
        held.end_reason,
        held.options,
        tuple((boot.start_s, boot.runs_s, boot.stopped_s) for boot in held.boots),
        (held.evicts_at_s, held.marks_at_s, held.announced_s),
    )


def restore_instance(held: HeldInstance, stored: SimulatedInstance) -> None:
    """Restore the remaining stored state of an instance that was bought as `stored` was."""
    held.boots = [Boot(*span) for span in stored.boots]
    held.evicts_at_s, held.marks_at_s, held.announced_s = stored.fate
    held.ended_at_s, held.end_cause, held.end_reason = stored.ended_at_s, stored.end_cause, stored.end_reason


def write_state(path: Path, state: MarketState) -> None:
    """Replace the state file."""
    record = {
        "schema": SCHEMA,
        "now_s": state.now_s,
        "seed": state.seed,
        "prices": state.prices,
        "instances": [
            {**asdict(instance), "request": {**asdict(instance.request), "market": str(instance.request.market)}}
            for instance in state.instances
        ],
    }
    new_path = path.with_suffix(".new")
    with new_path.open("w") as file:
        json.dump(record, file)
        file.flush()
        os.fsync(file.fileno())
    new_path.replace(path)


def read_state(path: Path) -> MarketState | None:
    """Return the state in the file, None if there is no file.

    Raises
    ------
    InputError
        For a file that holds no state of a market.
    """
    try:
        record = json.loads(path.read_text())
        if record["schema"] != SCHEMA:
            raise ValueError(f"is of schema {record['schema']}, not {SCHEMA}")
        instances = tuple(_instance(instance_record) for instance_record in record["instances"])
        return MarketState(int(record["now_s"]), str(record["seed"]), str(record["prices"]), instances)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: is not a state of a market ({error}); name another directory") from None


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file, as `MarketState.prices` holds it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def traces_digest(traces: Mapping[Market, Trace]) -> str:
    """Return a digest of traces; an empty string without traces."""
    sha = hashlib.sha256()
    for market, trace in traces.items():
        sha.update(f"{market} {len(trace)}".encode())
        sha.update(trace.times_s.tobytes() + trace.prices_micros.tobytes())
    return sha.hexdigest() if traces else ""


def _instance(record: Mapping[str, Any]) -> SimulatedInstance:
    request = {**record["request"], "market": Market.parse(record["request"]["market"])}
    evicts_s, marks_s, announced_s = record["fate"]
    cause = record["end_cause"]
    return SimulatedInstance(
        record["instance_id"],
        LaunchRequest(**request),
        int(record["launched_at_s"]),
        record["ended_at_s"],
        None if cause is None else EndCause(cause),
        record["end_reason"],
        LaunchOptions(**record["options"]),
        tuple((start_s, runs_s, stopped_s) for start_s, runs_s, stopped_s in record["boots"]),
        (evicts_s, marks_s, announced_s),
    )
