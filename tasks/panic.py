"""The end of all machines of an owner, without controller, Prefect or state database."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from proteus_spot.infra.clock import SystemClock
from proteus_spot.infra.ec2.owned_machines import OwnedMachine, OwnedMachines
from proteus_spot.infra.errors import InputError, ProteusError
from proteus_spot.infra.local_market.environment import endpoint_file
from proteus_spot.infra.local_market.job_stores import is_under_way
from proteus_spot.infra.settings import load_settings
from proteus_spot.infra.state.identity import OwnerFile, owner_directory, read_owner_files, recorded_owner, shown_url
from proteus_spot.infra.urls import sqlite_url

#: Real seconds to wait for the market to end the machines, and between two looks.
_WAIT_S = 300.0
_LOOK_S = 1.0
#: Number of looks in a row that must find nothing: a machine that was just bought may not be listed yet. After a spot
#: request was cancelled: it may have been fulfilled at that moment, and be listed later.
_LOOKS, _LOOKS_AFTER_CANCEL = 5, 45


@dataclass(frozen=True, slots=True)
class PanicResult:
    """What was ended.

    Attributes
    ----------
    owner : the owner whose machines were ended; several are all that are recorded for a database that does not answer;
        None: none was found, and nothing was ended.
    machines : the machines that were ended.
    cancelled : spot requests that were cancelled.
    owners : if none was found, the number of living machines of every owner that tags name.
    doubts : why machines that were meant may live on, one line each.
    """

    owner: str | None
    region: str
    machines: list[OwnedMachine] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    owners: dict[str, int] = field(default_factory=dict)
    doubts: list[str] = field(default_factory=list)


def panic(owner: str | None, directory: Path | None, tell: Callable[[str], None]) -> PanicResult:
    """End all machines of an owner in the region, and wait until the market has ended them.

    Parameters
    ----------
    owner : the owner id; None asks the state database of the settings, or of the run in `directory`. If that does not
        answer, all owners count that are recorded for it.
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
    records = _records(owner, directory)

    def open_machines(region: str) -> OwnedMachines:
        return OwnedMachines(region, settings.ec2_endpoint_url) if directory is None else _local(directory, region)

    if not records:
        machines = open_machines(settings.region)
        return PanicResult(None, settings.region, owners=dict(Counter(each.owner for each in machines.living())))
    results, doubts = [], []
    for record in records:
        region = record.region or settings.region
        try:
            machines = open_machines(region)
            if record.account is not None:
                _check_account(machines, record.owner, record.account, tell)
            results.append(_end(machines, record.owner, region, tell))
        except ProteusError as error:
            if len(records) == 1:
                raise
            doubts.append(str(error))  # the others still end
    ended = [machine for result in results for machine in result.machines]
    names, regions = ", ".join(each.owner for each in records), sorted({result.region for result in results})
    if len(records) > 1 and not ended:
        doubts.append(f"{len(records)} owners are recorded for this database, and none of them has a machine")
    cancelled = [name for result in results for name in result.cancelled]
    return PanicResult(names, ", ".join(regions), ended, cancelled, doubts=doubts)


def _records(owner: str | None, directory: Path | None) -> list[OwnerFile]:
    """Return what is known of `owner`, or of the owner of the state database of the settings or of a run.

    If the database does not say its owner, those are returned that are recorded for its address: there are several when
    it was made anew.
    """
    settings = load_settings()
    url = settings.database_url if directory is None else sqlite_url(directory / "state.db")
    files, shown = read_owner_files(owner_directory(url)), shown_url(url)
    owner = owner or recorded_owner(url)
    if owner is None and (recorded := [each for each in files if each.database == shown]):
        return recorded
    owner = owner or settings.owner or None
    if owner is None:
        return []
    return [each for each in files if each.owner == owner][:1] or [OwnerFile(owner, None, None, shown, None)]


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
    cancelled: list[str] = []
    ended: dict[str, OwnedMachine] = {}
    refused: dict[str, str] = {}
    looks = 0
    while looks < (_LOOKS_AFTER_CANCEL if cancelled else _LOOKS):
        cancelled += (fresh := machines.cancel_open_requests(owner))
        living = machines.living(owner)
        for machine in living:
            if machine.instance_id not in ended:
                ended[machine.instance_id] = machine
                tell(f"ending {machine.instance_id} ({machine.instance_type}/{machine.zone}, job {machine.job or '?'})")
        refused = machines.terminate([machine.instance_id for machine in living])
        looks = 0 if living or fresh else looks + 1
        if clock.now_s() > until_s:
            names = ", ".join(f"{machine.instance_id} ({refused.get(machine.instance_id, '')})" for machine in living)
            raise ProteusError(f"still alive after {_WAIT_S:g} s: {names}; end them in the console of EC2")
        clock.wait_until(clock.now_s() + _LOOK_S)
    return PanicResult(owner, region, list(ended.values()), cancelled)
