"""Instance types on sale: on-demand prices from AWS's Price List, machines as EC2 describes them.

*Source*: AWS Price List Query API (`GetProducts`), which a few regions serve for all; EC2 `DescribeInstanceTypes`.
"""

import json
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from proteus_spot.infra.ec2.ec2_spot_market import Ec2SpotMarket
from proteus_spot.infra.errors import ProteusError

#: A region that serves the Price List of all regions.
_PRICING_REGION = "us-east-1"
_FILTERS = (
    ("operatingSystem", "Linux"),
    ("tenancy", "Shared"),
    ("capacitystatus", "Used"),
    ("preInstalledSw", "NA"),
    ("marketoption", "OnDemand"),
)


@dataclass(frozen=True, slots=True)
class DescribedType:
    """A machine as EC2 describes it."""

    vcpu: int
    memory_gib: float
    gpus: int


def fetch_offers(market: Ec2SpotMarket, region: str) -> dict[str, Any]:
    """Return the Linux machines of a region and their on-demand terms, in the form of an offer file.

    Raises
    ------
    ProteusError
        If the Price List refuses or does not answer.
    """
    wanted = [
        {"Type": "TERM_MATCH", "Field": name, "Value": value} for name, value in (*_FILTERS, ("regionCode", region))
    ]
    products: dict[str, Any] = {}
    terms: dict[str, Any] = {}
    try:
        pages = market.connect("pricing", _PRICING_REGION).get_paginator("get_products")
        for page in pages.paginate(ServiceCode="AmazonEC2", Filters=wanted):
            for text in page["PriceList"]:
                offer = json.loads(text)
                products[offer["product"]["sku"]] = offer["product"]
                terms[offer["product"]["sku"]] = offer["terms"].get("OnDemand", {})
    except (ClientError, BotoCoreError) as error:
        raise ProteusError(f"the Price List: {error}; allow pricing:GetProducts") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ProteusError("the Price List: answers with no offers; run it again") from None
    return {"products": products, "terms": {"OnDemand": terms}}


def describe_types(market: Ec2SpotMarket) -> dict[str, DescribedType]:
    """Return the instance types of the market's region, by name.

    Raises
    ------
    ProteusError
        If EC2 refuses or does not answer.
    """
    try:
        pages = market.connect("ec2").get_paginator("describe_instance_types").paginate()
        rows = [row for page in pages for row in page["InstanceTypes"]]
    except (ClientError, BotoCoreError) as error:
        raise ProteusError(f"EC2: {error}; allow ec2:DescribeInstanceTypes") from None
    return {
        row["InstanceType"]: DescribedType(
            row["VCpuInfo"]["DefaultVCpus"],
            row["MemoryInfo"]["SizeInMiB"] / 1024,
            sum(gpu.get("Count", 0) for gpu in row.get("GpuInfo", {}).get("Gpus", ())),
        )
        for row in rows
    }
