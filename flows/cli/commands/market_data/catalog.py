"""The verb `proteus catalog fetch`."""

from pathlib import Path

import click

from proteus_spot.flows.cli.options import json_option
from proteus_spot.flows.terminal.output import notes, write_json
from proteus_spot.infra.errors import InputError


@click.group(short_help="Instance types and their on-demand prices.")
def catalog() -> None:
    """Instance types and their on-demand prices, for PROTEUS_CATALOG and --catalog."""


@catalog.command("fetch", short_help="Fetch the instance types of a region, with their prices, from AWS.")
@click.argument("target", metavar="OUT")
@click.option("--region", metavar="NAME", help="Default: PROTEUS_REGION.")
@json_option("what was written")
def fetch(target: str, region: str | None, json_target: str | None) -> None:
    """Fetch what EC2 sells in a region into the CSV OUT (or .csv.gz): types, vCPUs, memory, GPUs, on-demand prices.

    It needs credentials that may call pricing:GetProducts and ec2:DescribeInstanceTypes.
    """
    from proteus_spot.infra.settings import load_settings
    from proteus_spot.studies.market_data.fetched_catalog import fetch_catalog
    from proteus_spot.studies.output_files import check_file_target

    if not target.endswith((".csv", ".csv.gz")):
        raise InputError(f"{target}: want a name that ends in .csv or .csv.gz")
    check_file_target("OUT", Path(target))
    settings = load_settings()
    made = fetch_catalog(target, settings if region is None else settings.model_copy(update={"region": region}))
    notes(f"{name}: has several prices and is left out" for name in made["ambiguous"])
    write_json(json_target, made)
    if json_target != "-":
        click.echo(f"written: {target}, {made['types']} types of {made['region']}, {made['gpu_types']} with GPUs")
