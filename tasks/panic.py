"""The end of all machines of an owner, without controller, Prefect or state database."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from infra.clock import SystemClock
from infra.ec2.owned_machines import OwnedMachine, OwnedMachines
from infra.errors import InputError, ProteusError
from infra.local.environment import endpoint_file
from infra.local.job_stores import is_under_way
from infra.settings import load_settings
from infra.state.identity import OwnerFile, owner_directory, read_owner_files, shown_url
from infra.urls import sqlite_url

#: Real seconds to wait for the market to end the machines, and between two looks.
_WAIT_S = 300.0
_LOOK_S = 1.0
#: Number of looks in a row that must find nothing: a machine that was just bought may not be listed yet.
_LOOKS = 3


@dataclass(frozen=True, slots=True)
class PanicResult:
    """What was ended.

    Attributes
    ----------
    owner : the owner whose machines were ended; None: none was found, and nothing was ended.
    machines : the machines that were ended.
    cancelled : spot requests that were cancelled.
    owners : if none was found, the number of living machines of every owner that tags name.
    """

    owner: str | None
    region: str
    machines: list[OwnedMachine] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    owners: dict[str, int] = field(default_factory=dict)


def panic(owner: str | None, directory: Path | None, tell: Callable[[str], None]) -> PanicResult:
    """End all machines of an owner in the region, and wait until the market has ended them.

    Parameters
    ----------
    owner : the owner id; None finds that of the state database of the settings, or of the run in `directory`.
    directory : directory of a local run, whose market is meant.
    tell : receives a line for each machine, as it is ended.

    Raises
    ------
    InputError
        If `owner` is empty, `directory` is not one of a run that is under way, or the credentials are of another
        account than the one in which the owner's machines are.
    ProteusError
        If the market cannot be asked, or machines are still alive after five minutes.
    """
    if owner is not None and not owner.strip():
        raise InputError("--owner: is empty; give an owner id, or leave the option out")
    settings = load_settings()
    record = _owner_file(owner, directory)
    owner = owner or (settings.owner or None if record is None else record.owner)
    region = settings.region if record is None or record.region is None else record.region
    machines = OwnedMachines(region, settings.ec2_endpoint_url) if directory is None else _local(directory, region)
    if owner is None:
        return PanicResult(None, region, owners=dict(Counter(each.owner for each in machines.living())))
    if record is not None and record.account is not None:
        _check_account(machines, owner, record.account, tell)
    return _end(machines, owner, region, tell)


def _owner_file(owner: str | None, directory: Path | None) -> OwnerFile | None:
    """Return what is recorded, beside the state database of the settings or of a run, of an owner or the database."""
    url = load_settings().database_url if directory is None else sqlite_url(directory / "state.db")
    records = read_owner_files(owner_directory(url))
    return next((r for r in records if owner == r.owner or (owner is None and r.database == shown_url(url))), None)


def _check_account(machines: OwnedMachines, owner: str, account: str, tell: Callable[[str], None]) -> None:
    """Refuse credentials of another account, in which no machine of the owner would be found."""
    try:
        ours = machines.account_id()
    except ProteusError as error:
        tell(f"the account of these credentials is not known ({error}); going on")
        return
    if ours != account:
        raise InputError(
            f"owner {owner}: its machines are in account {account}, and these credentials are of account {ours}; "
            "use that account's"
        )


def _local(directory: Path, region: str) -> OwnedMachines:
    """Return the machines of the market that a local run keeps."""
    if not is_under_way(directory):
        raise InputError(f"--dir {directory}: no run is under way there, so no machine of one lives")
    try:
        announced = json.loads(endpoint_file(directory).read_text())
        credentials = (str(announced["access_key_id"]), "unchecked")
        return OwnedMachines(region, str(announced["url"]), credentials)
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(f"--dir {directory}: its market has not started, so no machine of it lives") from None


def _end(machines: OwnedMachines, owner: str, region: str, tell: Callable[[str], None]) -> PanicResult:
    clock = SystemClock()
    until_s = clock.now_s() + _WAIT_S
    cancelled = machines.cancel_open_requests(owner)
    ended: dict[str, OwnedMachine] = {}
    refused: dict[str, str] = {}
    looks = 0
    while looks < _LOOKS:
        living = machines.living(owner)
        for machine in living:
            if machine.instance_id not in ended:
                ended[machine.instance_id] = machine
                tell(f"ending {machine.instance_id} ({machine.instance_type}/{machine.zone}, job {machine.job or '?'})")
        refused = machines.terminate([machine.instance_id for machine in living])
        looks = 0 if living else looks + 1
        if clock.now_s() > until_s:
            names = ", ".join(f"{machine.instance_id} ({refused.get(machine.instance_id, '')})" for machine in living)
            raise ProteusError(f"still alive after {_WAIT_S:g} s: {names}; end them in the console of EC2")
        clock.wait_until(clock.now_s() + _LOOK_S)
    return PanicResult(owner, region, list(ended.values()), cancelled)
