"""All checks, in the order of the walk of docs/aws.md, and their findings."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from proteus_spot.bidding.market.spot_market import MarketError
from proteus_spot.infra.errors import ProteusError
from proteus_spot.tasks.doctor import account, machine
from proteus_spot.tasks.doctor.setup import Setup, Wrong


@dataclass(frozen=True, slots=True)
class SetupCheck:
    """A check: its name, its step in docs/aws.md, and the function that says what it found, or raises `Wrong`."""

    name: str
    step: int
    find: Callable[[Setup], str]


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found; `fix` is empty where nothing is wrong."""

    check: str
    step: int
    good: bool
    what: str
    fix: str = ""


CHECKS = (
    SetupCheck("versions", 1, machine.check_versions),
    SetupCheck("credentials", 1, account.check_credentials),
    SetupCheck("clock", 1, machine.check_clock),
    SetupCheck("catalogue", 1, machine.check_catalog),
    SetupCheck("image", 2, account.check_image),
    SetupCheck("subnets", 3, account.check_subnets),
    SetupCheck("security groups", 3, account.check_security_groups),
    SetupCheck("bucket", 3, machine.check_bucket),
    SetupCheck("permissions", 4, account.check_permissions),
    SetupCheck("spot role", 4, account.check_spot_role),
    SetupCheck("on-demand quota", 4, account.check_on_demand_quota),
    SetupCheck("spot quota", 4, account.check_spot_quota),
    SetupCheck("GPU quota", 4, account.check_gpu_quota),
    SetupCheck("database", 5, machine.check_database),
    SetupCheck("server", 5, machine.check_server),
)
#: The step that boots a node, after those of the checks.
BOOT_STEP = 6


def examine(setup: Setup, step: int | None = None) -> Iterator[Finding]:
    """Yield the finding of each check; of one step alone, if it is given."""
    for check in CHECKS:
        if step in (None, check.step):
            yield finding(check.name, check.step, lambda check=check: check.find(setup))  # type: ignore[misc]


def finding(name: str, step: int, find: Callable[[], str]) -> Finding:
    """Return the finding of one check: what it says, or what is wrong and its fix."""
    try:
        return Finding(name, step, True, find())
    except Wrong as error:
        return Finding(name, step, False, str(error), error.fix)
    except (ProteusError, MarketError) as error:
        return Finding(name, step, False, str(error), "see the lines above, and docs/aws.md")
