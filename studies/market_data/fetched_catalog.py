"""A catalogue from AWS: prices of the Price List, machines as EC2 describes them."""

from dataclasses import replace
from typing import Any

from proteus_spot.bidding.market.catalog import CatalogRow
from proteus_spot.infra.ec2.ec2_spot_market import Ec2SpotMarket
from proteus_spot.infra.ec2.offers import describe_types, fetch_offers
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.market_data.aws_price_list import priced_offers
from proteus_spot.infra.market_data.catalogs import write_catalog
from proteus_spot.infra.settings import Settings


def fetch_catalog(target: str, settings: Settings) -> dict[str, Any]:
    """Write the types that EC2 sells in the settings' region to the CSV `target`; return what was written.

    A type that has a price and that EC2 does not describe there is left out: it cannot be bought.

    Raises
    ------
    InputError
        If the region sells nothing.
    ProteusError
        If AWS refuses or does not answer.
    """
    market = Ec2SpotMarket(settings)
    listed = priced_offers("the Price List", fetch_offers(market, settings.region), settings.region)
    described = describe_types(market)
    rows = []
    for row in listed.rows:
        kind = row.instance_type
        if (found := described.get(kind.name)) is not None:
            sized = replace(kind, vcpu=found.vcpu, memory_gib=found.memory_gib, gpus=found.gpus)
            rows.append(CatalogRow(sized, row.region))
    if not rows:
        raise InputError(f"PROTEUS_REGION {settings.region}: EC2 describes no type that has a price; fix it")
    write_catalog(target, rows)
    return {
        "written": target,
        "region": settings.region,
        "types": len(rows),
        "gpu_types": sum(row.instance_type.gpus > 0 for row in rows),
        "ambiguous": list(listed.ambiguous),
    }
