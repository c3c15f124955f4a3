"""`proteus catalog fetch`: prices from the Price List (scripted), machines as moto's EC2 describes them."""

import json
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber
from click.testing import CliRunner
from moto import mock_aws

from proteus_spot.bidding.market.model import Market
from proteus_spot.bidding.market.money import to_micros
from proteus_spot.flows.cli.commands.market_data.catalog import catalog
from proteus_spot.infra.ec2.ec2_spot_market import Ec2SpotMarket
from proteus_spot.infra.errors import InputError, ProteusError
from proteus_spot.infra.market_data.catalogs import read_catalog
from proteus_spot.infra.settings import load_settings
from tests.support.market_servers import credentials


def offer(kind: str, dollars: str, **more: str) -> str:
    attributes = {
        "instanceType": kind,
        "vcpu": "1",
        "memory": "1 GiB",
        "regionCode": "us-east-1",
        "location": "US East (N. Virginia)",
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "licenseModel": "No License required",
        **more,
    }
    price = {"unit": "Hrs", "pricePerUnit": {"USD": dollars}}
    terms = {"OnDemand": {f"{kind}.T": {"priceDimensions": {f"{kind}.T.D": price}}}}
    return json.dumps({"product": {"sku": kind, "attributes": attributes}, "terms": terms})


@pytest.fixture
def pricing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stubber]:
    """The client of the Price List, whose answers are scripted; EC2 is moto's."""
    credentials(monkeypatch)
    load_settings.cache_clear()
    client = boto3.client("pricing", "us-east-1")

    def connected(market: Ec2SpotMarket, service: str, region: str | None = None) -> Any:
        return client if service == "pricing" else boto3.client(service, "us-east-1")

    monkeypatch.setattr(Ec2SpotMarket, "connect", connected)
    with mock_aws(), Stubber(client) as stubber:
        yield stubber


def test_the_catalogue_has_prices_and_machines(pricing: Stubber, tmp_path: Path) -> None:
    rows = [offer("c5.xlarge", "0.17"), offer("g4dn.xlarge", "0.526"), offer("none.large", "1.0")]
    rows.append(offer("m5.large", "0.2", licenseModel="Bring your own license"))
    pricing.add_response("get_products", {"PriceList": rows[:2], "NextToken": "more"})
    pricing.add_response("get_products", {"PriceList": rows[2:]})
    target = tmp_path / "catalog.csv"
    done = CliRunner().invoke(catalog, ["fetch", str(target)])
    assert done.exception is None, done.output
    assert "2 types of us-east-1, 1 with GPUs" in done.output
    found = read_catalog(target)
    day = date(2026, 1, 1)
    kind = found.find(Market("c5.xlarge", "us-east-1a"), day)
    assert kind is not None
    assert (kind.vcpu, kind.memory_gib, kind.on_demand_micros) == (4, 8.0, to_micros("0.17")), "EC2's, not the list's"
    assert target.read_text().splitlines()[0].endswith(",gpus")
    assert target.read_text().splitlines()[2].endswith("0.526,1")


def test_a_refusal_names_the_right_that_is_missing(pricing: Stubber, tmp_path: Path) -> None:
    pricing.add_client_error("get_products", "AccessDeniedException")
    done = CliRunner().invoke(catalog, ["fetch", str(tmp_path / "catalog.csv")])
    assert isinstance(done.exception, ProteusError)
    assert "pricing:GetProducts" in str(done.exception)
    assert not list(tmp_path.iterdir())


def test_a_region_without_offers_is_refused(pricing: Stubber, tmp_path: Path) -> None:
    pricing.add_response("get_products", {"PriceList": []})
    done = CliRunner().invoke(catalog, ["fetch", str(tmp_path / "catalog.csv")])
    assert isinstance(done.exception, InputError)
