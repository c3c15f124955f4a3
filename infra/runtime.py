"""The runtime of a process: the adapters that its settings select.

Only this module depends on the mode. A simulated market differs from the real one in the address of its API and in the
clock; no other code asks which it is.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache

from proteus_spot.bidding.market.catalog import Catalog
from proteus_spot.bidding.market.machine_events import EventQueue
from proteus_spot.bidding.market.spot_market import SpotMarket
from proteus_spot.infra.clock import Clock, open_clock
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.market_data.catalogs import read_catalog
from proteus_spot.infra.masking import mask_logs
from proteus_spot.infra.settings import Settings, load_settings
from proteus_spot.infra.state.identity import write_owner_file
from proteus_spot.infra.state.store import Store
from proteus_spot.infra.storage.blobs import Blobs, open_blobs


@dataclass(frozen=True)
class Runtime:
    """The adapters of a process: settings, clock, state database, blobs, market, catalogue."""

    settings: Settings
    clock: Clock
    store: Store
    blobs: Blobs
    market: SpotMarket
    catalog: Catalog
    #: Events of machines; None where no queue is named.
    events: EventQueue | None = None

    def now_s(self) -> int:
        """Return market time in whole seconds."""
        return int(self.clock.now_s())

    @cached_property
    def owner(self) -> str:
        """Owner of the machines of this state database: the tag that tells them from all others in the account."""
        return self.store.owner.identity().owner_id

    def pinned_market(self) -> SpotMarket:
        """Return the market, after a check that it is in the account and region in which this database's machines are.

        Raises
        ------
        InputError
            If it is in others: there all machines would look as if they had vanished, and all would be bought again.
        MarketError
            If the market does not say its account.
        """
        return self._market_of_account

    @cached_property
    def _market_of_account(self) -> SpotMarket:
        identity = self.store.owner.pin(self.market.account_id(), self.settings.region)
        write_owner_file(self.settings.database_url, identity, self.settings.ec2_endpoint_url)
        return self.market


@lru_cache(maxsize=1)
def open_runtime() -> Runtime:
    """Return the runtime of this process; opened once, from the settings at that time.

    Raises
    ------
    InputError
        If a setting is invalid: one line that names it.
    """
    from proteus_spot.infra.ec2.ec2_spot_market import (
        Ec2SpotMarket,  # boto3 takes a third of a second, and not every verb needs it
    )
    from proteus_spot.infra.ec2.sqs_events import SqsEvents

    mask_logs()
    settings = load_settings()
    clock = open_clock(settings.clock)
    store = Store.open(settings.database_url)
    identity = store.owner.identity()
    if settings.owner not in ("", identity.owner_id):
        store.close()
        raise InputError(
            f"PROTEUS_OWNER {settings.owner}: the machines of this state database belong to {identity.owner_id}; "
            "unset it, or use another state database (PROTEUS_DATABASE_URL)"
        )
    write_owner_file(settings.database_url, identity, settings.ec2_endpoint_url)
    market, queue = Ec2SpotMarket(settings), settings.machine_events_url
    return Runtime(
        settings=settings,
        clock=clock,
        store=store,
        blobs=open_blobs(settings),
        market=market,
        catalog=read_catalog(settings.catalog),
        events=None if queue is None else SqsEvents(queue, lambda: market.connect("sqs")),
    )


def forget_runtime() -> None:
    """Close the runtime of this process; the next `open_runtime` reads the settings again."""
    if open_runtime.cache_info().currsize:
        open_runtime().store.close()
    open_runtime.cache_clear()
    load_settings.cache_clear()
