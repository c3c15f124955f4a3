"""Prices, a catalogue and allocations whose hours are booked."""

from datetime import date

import numpy as np

from proteus_spot.bidding.market.catalog import Catalog, CatalogRow
from proteus_spot.bidding.market.model import Allocation, InstanceType, Market, Tier
from proteus_spot.bidding.market.traces import Trace, TraceSet
from proteus_spot.infra.state.store import Store

HOUR = 3600
T0 = 1_460_000_000  # 2016-04-07
SPOT = Market("c4.large", "us-east-1a")
CATALOG = Catalog(
    [
        CatalogRow(InstanceType("m4.large", 2, 8.0, 120_000), "us-east-1"),
        CatalogRow(InstanceType("m4.large", 2, 8.0, 100_000), "us-east-1", date(2016, 4, 8)),
    ]
)
#: 20000 at first, 30000 after 50 minutes, 40000 after 100 minutes.
TRACES = TraceSet({SPOT: Trace(np.array([T0 - 10, T0 + 3000, T0 + 6000]), np.array([20_000, 30_000, 40_000]))})
HELD = Allocation("a-1", SPOT, 3, T0, Tier.TRANSIENT, 50_000)
RELIABLE = Allocation("r-1", Market("m4.large", "us-east-1a"), 2, T0, Tier.RELIABLE)


def buy(store: Store, allocation: Allocation) -> None:
    store.purchases.record_allocation("job-1", f"order-{allocation.allocation_id}", allocation, [])
