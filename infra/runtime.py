"""The runtime of a process: the adapters that its settings select.

Only this module depends on the mode. A simulated market differs from the real one in the address of its API and in the
clock; no other code asks which it is.
"""

from dataclasses import dataclass
from functools import lru_cache

from bidding.market.catalog import Catalog
from bidding.market.spot_market import SpotMarket
from infra.clock import Clock, open_clock
from infra.ec2.spot_market import Ec2SpotMarket
from infra.market_data.catalogs import read_catalog
from infra.masking import mask_logs
from infra.settings import Settings, load_settings
from infra.state.store import Store
from infra.storage.blobs import Blobs, open_blobs


@dataclass(frozen=True)
class Runtime:
    """The adapters of a process: settings, clock, state database, blobs, market, catalogue."""

    settings: Settings
    clock: Clock
    store: Store
    blobs: Blobs
    market: SpotMarket
    catalog: Catalog

    def now_s(self) -> int:
        """Return market time in whole seconds."""
        return int(self.clock.now_s())


@lru_cache(maxsize=1)
def open_runtime() -> Runtime:
    """Return the runtime of this process; opened once, from the settings at that time.

    Raises
    ------
    InputError
        If a setting is invalid: one line that names it.
    """
    mask_logs()
    settings = load_settings()
    return Runtime(
        settings=settings,
        clock=open_clock(settings.clock),
        store=Store.open(settings.database_url),
        blobs=open_blobs(settings),
        market=Ec2SpotMarket(settings),
        catalog=read_catalog(settings.catalog),
    )


def forget_runtime() -> None:
    """Close the runtime of this process; the next `open_runtime` reads the settings anew."""
    if open_runtime.cache_info().currsize:
        open_runtime().store.close()
    open_runtime.cache_clear()
    load_settings.cache_clear()
