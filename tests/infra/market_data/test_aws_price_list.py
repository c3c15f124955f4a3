"""AWS's price list in both of its forms: which offers are included."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from proteus_spot.infra.errors import InputError
from proteus_spot.infra.market_data.aws_price_list import PriceList, read_price_list

#: The attribute's name in the JSON and in the CSV.
NAMES = {
    "instanceType": "Instance Type",
    "vcpu": "vCPU",
    "memory": "Memory",
    "regionCode": "Region Code",
    "location": "Location",
    "locationType": "Location Type",
    "operatingSystem": "Operating System",
    "tenancy": "Tenancy",
    "capacitystatus": "CapacityStatus",
    "preInstalledSw": "Pre Installed S/W",
    "licenseModel": "License Model",
    "operation": "operation",
    "marketoption": "MarketOption",
}
MACHINE = {
    "instanceType": "m5.large",
    "vcpu": "2",
    "memory": "8 GiB",
    "regionCode": "us-east-1",
    "location": "US East (N. Virginia)",
    "locationType": "AWS Region",
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "capacitystatus": "Used",
    "preInstalledSw": "NA",
    "licenseModel": "No License required",
    "operation": "RunInstances",
    "marketoption": "OnDemand",
}
PRICING = {"term": "OnDemand", "unit": "Hrs", "price": "0.0960000000", "currency": "USD"}
HEAD = (("FormatVersion", "v1.0"), ("Disclaimer", "For, machines"), ("Publication Date", "x"), ("Version", "1"))


def machine(**changes: str) -> dict[str, str]:
    return MACHINE | PRICING | changes


def as_csv(offers: list[dict[str, str]], without: tuple[str, ...] = ()) -> str:
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerows([*HEAD, ("OfferCode", "AmazonEC2")])
    names = {name: theirs for name, theirs in NAMES.items() if name not in without}
    writer.writerow(["SKU", "TermType", "Unit", "PricePerUnit", "Currency", *names.values(), "ECU"])
    for number, offer in enumerate(offers):
        pricing = [offer["term"], offer["unit"], offer["price"], offer["currency"]]
        writer.writerow([f"SKU{number}", *pricing, *(offer[name] for name in names), "NA"])
    return text.getvalue()


def as_json(offers: list[dict[str, str]], without: tuple[str, ...] = ()) -> str:
    products: dict[str, Any] = {}
    terms: dict[str, Any] = {"OnDemand": {}, "Reserved": {}}
    for number, offer in enumerate(offers):
        sku = f"SKU{number}"
        attributes = {name: offer[name] for name in NAMES if name not in without}
        products[sku] = {"sku": sku, "productFamily": "Compute Instance", "attributes": attributes}
        dimension = {"unit": offer["unit"], "pricePerUnit": {offer["currency"]: offer["price"]}}
        terms[offer["term"]][sku] = {f"{sku}.T": {"sku": sku, "priceDimensions": {f"{sku}.T.R": dimension}}}
    products["STORE"] = {"sku": "STORE", "productFamily": "Storage", "attributes": {"regionCode": "us-east-1"}}
    return json.dumps({"formatVersion": "v1.0", "offerCode": "AmazonEC2", "products": products, "terms": terms})


FORMS = pytest.mark.parametrize("form", [as_csv, as_json])


def read(tmp_path: Path, text: str, region: str | None = None) -> PriceList:
    (tmp_path / "index").write_text(text)
    return read_price_list(tmp_path / "index", region)


def figures(found: PriceList) -> list[tuple[str, str, int, float, int]]:
    kinds = [(row.region, row.instance_type) for row in found.rows]
    return sorted((region, kind.name, kind.vcpu, kind.memory_gib, kind.on_demand_micros) for region, kind in kinds)


@FORMS
@pytest.mark.parametrize(
    "other",
    [
        {"term": "Reserved"},
        {"unit": "Quantity"},
        {"price": "0.0000000000"},
        {"operatingSystem": "Windows"},
        {"tenancy": "Dedicated"},
        {"capacitystatus": "UnusedCapacityReservation"},
        {"preInstalledSw": "SQL Std"},
        {"licenseModel": "Bring your own license"},
        {"operation": "RunInstances:0002"},
        {"marketoption": "CapacityBlock"},
        {"locationType": "AWS Local Zone"},
    ],
    ids=str,
)
def test_only_linux_by_the_hour_on_shared_machines_counts(tmp_path: Path, form: Any, other: dict[str, str]) -> None:
    found = read(tmp_path, form([machine(instanceType="x1.big", **other), machine(**other), machine()]))
    assert figures(found) == [("us-east-1", "m5.large", 2, 8.0, 96_000)]
    assert found.ambiguous == ()


@FORMS
def test_each_region_has_its_prices_and_one_can_be_chosen(tmp_path: Path, form: Any) -> None:
    west = machine(regionCode="us-west-1", price="0.112", memory="1,952 GiB", vcpu="128")
    assert figures(read(tmp_path, form([machine(), west]))) == [
        ("us-east-1", "m5.large", 2, 8.0, 96_000),
        ("us-west-1", "m5.large", 128, 1952.0, 112_000),
    ]
    assert [row.region for row in read(tmp_path, form([machine(), west]), "us-west-1").rows] == ["us-west-1"]
    with pytest.raises(InputError, match="has no on-demand Linux machine in mars-1"):
        read(tmp_path, form([machine()]), "mars-1")


@FORMS
def test_an_old_list_has_fewer_attributes_and_names_of_places(tmp_path: Path, form: Any) -> None:
    text = form(
        [machine(), machine(location="EU (Ireland)")], ("regionCode", "capacitystatus", "marketoption", "locationType")
    )
    assert [row.region for row in read(tmp_path, text).rows] == ["us-east-1", "eu-west-1"]


@FORMS
def test_what_has_two_prices_is_left_out_and_said(tmp_path: Path, form: Any) -> None:
    found = read(
        tmp_path, form([machine(), machine(price="0.2"), machine(instanceType="a"), machine(instanceType="a")])
    )
    assert [row.instance_type.name for row in found.rows] == ["a"]
    assert found.ambiguous == ("m5.large/us-east-1",)


@FORMS
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"currency": "CNY"}, "the price of m5.large is in CNY"),
        ({"vcpu": "two"}, "m5.large in US East .*'two'"),
        ({"vcpu": "0"}, "m5.large in US East .*0 vCPU"),
        ({"memory": "NA"}, "m5.large in US East"),
        ({"memory": "8 TB"}, "m5.large in US East .*8 TB"),
        ({"price": "ten"}, "m5.large in US East .*'ten'"),
        ({"tenancy": "Host"}, "has no on-demand Linux machine;"),
    ],
    ids=str,
)
def test_a_list_that_cannot_be_used_is_refused(tmp_path: Path, form: Any, change: dict[str, str], said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        read(tmp_path, form([machine(**change)]))
    assert str(caught.value).startswith(f"{tmp_path / 'index'}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "row 6 lacks TermType"),
        ("a,b\n" * 9, "row 6 lacks TermType"),
        (as_csv([machine()], ("vcpu",)), "row 6 lacks vCPU;"),
        (as_csv([machine()]) + '"a"\n', "Expected .* columns"),
        ("{", "row 1: is not JSON"),
        ("{}", "is JSON without products"),
        ('{"products": {}, "terms": []}', "is JSON without products"),
        ('{"products": {"A": 1}, "terms": {"OnDemand": {}}}', "product A: is not as in an offer file"),
    ],
)
def test_what_is_no_price_list_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        read(tmp_path, text)
    assert "\n" not in str(caught.value)
