"""The market and the servers of `proteus up`. Imports no Prefect: its settings are not set yet."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proteus_spot.bidding.market.model import DAY_S
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.extras import need_extra
from proteus_spot.infra.files import write_whole
from proteus_spot.infra.local_market.announcement import DEFAULT_DIRECTORY, SEED_FILE, Announcement, announced
from proteus_spot.infra.local_market.deployments import LocalDeployments, repository
from proteus_spot.infra.local_market.environment import LocalEnvironment
from proteus_spot.infra.local_market.prefect_server import is_free
from proteus_spot.studies.market_data.local_market import MarketFile, generated_market, write_generated

#: Directory of the state unless another one is given.
UP_DIRECTORY = DEFAULT_DIRECTORY
#: Days for which prices are generated: at 60 market seconds a second, a real day.
_DAYS = 60.0


@dataclass(frozen=True, slots=True)
class StandingMarket:
    """The generated market of a directory."""

    file: MarketFile
    seed: int

    @property
    def until_s(self) -> int:
        """Market time at which the generated prices end."""
        return int(self.file.start_s + _DAYS * DAY_S)

    def write(self) -> None:
        """Generate the prices, unless they were generated before."""
        if self.file.path.exists():
            return
        write_generated(self.file, None, self.seed, _DAYS * 24)
        write_whole(self.file.path.with_name(SEED_FILE), json.dumps({"seed": self.seed}).encode())


def standing_market(directory: Path, seed: int | None, history_days: float) -> StandingMarket:
    """Return the market of `directory`: the one that was generated there before, or one of `seed` (None: 0).

    Nothing is written yet.

    Raises
    ------
    InputError
        If the directory has the market of another seed.
    """
    file = generated_market(directory / "prices.csv.gz", (), None, history_days)
    record = directory / SEED_FILE
    if not (record.exists() and file.path.exists()):
        return StandingMarket(file, seed or 0)
    before = int(json.loads(record.read_text())["seed"])
    if seed not in (None, before):
        raise InputError(f"--seed {seed}: {directory} has the market of seed {before}; give that, or another --dir")
    return StandingMarket(file, before)


def check_up(port: int | None) -> None:
    """Refuse a port that is taken, and an installation that lacks prefect.yaml or the market, before a start."""
    need_extra("local", "a market on this machine")
    repository()
    if port is not None and not is_free(port):
        raise InputError(f"--port {port}: another process listens there; give another, or leave it out")


def deployments_of(world: LocalEnvironment, environment: Mapping[str, str]) -> LocalDeployments:
    """Return the worker and the deployments for the server of `world`; a context manager starts and ends them."""
    return LocalDeployments(world.prefect.api_url, world.directory, environment, world.prefect.auth)


@contextmanager
def announcement_of(world: LocalEnvironment, market: StandingMarket) -> Iterator[Mapping[str, Any]]:
    """Announce the servers in the directory of `world` for the context; give the announcement."""
    announcement = Announcement(
        api_url=world.prefect.api_url,
        ui_url=world.prefect.ui_url,
        directory=str(world.directory),
        scale=world.clock.scale,
        seed=market.seed,
        market_from_s=market.file.start_s,
        market_until_s=market.until_s,
        auth=world.prefect.auth,
    )
    with announced(world.directory, announcement):
        yield announcement.as_json()
