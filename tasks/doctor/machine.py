"""Checks of this machine and what it reaches: versions, server, database, bucket, catalogue."""

import re
import secrets
import sys
from collections.abc import Mapping
from datetime import UTC, date, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import httpx
from packaging.requirements import Requirement

from proteus_spot.bidding.market.model import Market
from proteus_spot.infra.clock import SystemClock
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.local_market.announcement import DEFAULT_DIRECTORY, find_announcement
from proteus_spot.infra.local_market.deployments import POOL, repository
from proteus_spot.infra.local_market.prefect_server import basic_auth
from proteus_spot.infra.masking import masked
from proteus_spot.infra.state.database import stored_revision
from proteus_spot.infra.state.upgrades import revisions
from proteus_spot.infra.storage.blobs import BlobError, open_blobs
from proteus_spot.infra.structured_text import read_yaml
from proteus_spot.tasks.doctor.setup import Setup, Wrong

#: Prices on demand change a few times a year.
_MOST_CATALOG_DAYS = 180
_ANSWER_S = 5.0


def check_versions(_setup: Setup) -> str:
    """Check that each package that this program needs is installed in a version that it works with."""
    wrong = []
    for text in metadata.requires("proteus-spot") or ():
        wanted = Requirement(text)
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
            continue
        try:
            found = metadata.version(wanted.name)
        except metadata.PackageNotFoundError:
            wrong.append(f"{wanted.name} is not installed")
            continue
        if not wanted.specifier.contains(found, prereleases=True):
            wrong.append(f"{wanted.name} is {found}, not {wanted.specifier}")
    if wrong:
        raise Wrong("; ".join(wrong), "install the locked versions: `make .venv`")
    python = ".".join(map(str, sys.version_info[:3]))
    return f"proteus {metadata.version('proteus-spot')}, Python {python}; all packages fit"


def check_database(setup: Setup) -> str:
    """Check that the state database answers and has a schema that this program knows."""
    newest = revisions()[-1]
    try:
        found = stored_revision(setup.settings.database_url)
    except InputError as error:
        what, _, fix = str(error).rpartition("; ")
        raise Wrong(what, fix) from None
    if found is None:
        return f"is new; the first use makes schema {newest}"
    if found not in revisions():
        raise Wrong(
            f"has schema {found}, which this program does not know; its newest is {newest}",
            "use the program that made the database, or another database (PROTEUS_DATABASE_URL)",
        )
    return f"has schema {found}" + ("" if found == newest else f"; the next use upgrades it to {newest}")


def check_bucket(setup: Setup) -> str:
    """Check that a blob can be written, listed, read back and deleted."""
    folder, data = f"doctor/{secrets.token_hex(8)}", secrets.token_bytes(64)
    name = f"{folder}/probe"
    try:
        blobs = open_blobs(setup.settings)
        blobs.write_bytes(name, data)
        try:
            if blobs.read_bytes(name) != data or not list(blobs.list(folder)):
                raise Wrong("a blob is not read back as it was written", "use a store that reads what it wrote")
        finally:
            blobs.remove(name)
        if blobs.exists(name):
            raise Wrong("a blob is still there after it was deleted", "allow s3:DeleteObject under PROTEUS_BLOB_URL")
    except (BlobError, InputError) as error:
        raise Wrong(str(error), "fix PROTEUS_BLOB_URL, or the rights to it (docs/aws.md)") from None
    return f"{masked(setup.settings.blob_url)}: wrote, read back and deleted a blob"


def check_catalog(setup: Setup) -> str:
    """Check that the catalogue prices the job's markets, and that its prices are of these months."""
    settings, day = setup.settings, setup.day
    fix = "run `proteus catalog fetch catalog.csv`, and set PROTEUS_CATALOG to the file"
    try:
        catalog = setup.catalog
    except InputError as error:
        raise Wrong(str(error), fix) from None
    markets = [] if setup.job is None else list(dict.fromkeys([*setup.spot_markets, setup.reliable]))
    for market in markets:
        if (fault := catalog.fault(market, day)) is not None:
            raise Wrong(fault, fix)
    sold = catalog.at(day, settings.region)
    if not sold:
        raise Wrong(f"has no type of {settings.region}", fix)
    rows = [row.from_day for name in sold for row in catalog.rows(Market(name, f"{settings.region}a"))]
    age = (day - _newest(rows, day, settings.catalog)).days
    if age > _MOST_CATALOG_DAYS:
        raise Wrong(f"its newest price of {settings.region} is {age} days old", fix)
    return f"{len(sold)} types of {settings.region}, {age} days old"


def _newest(from_days: list[date | None], day: date, file: Path | None) -> date:
    """Return the day of the newest price; where rows have none, that of the file."""
    known = [each for each in from_days if each is not None and each <= day]
    if known or file is None:
        return max(known, default=date.min)
    try:
        return datetime.fromtimestamp(Path(file).stat().st_mtime, UTC).date()
    except OSError as error:
        raise Wrong(f"{file}: {error.strerror}", "fix PROTEUS_CATALOG") from None


def check_clock(setup: Setup) -> str:
    """Check this machine's clock against that of AWS, which refuses requests that are minutes off."""
    before_s = SystemClock().now_s()
    theirs_s = setup.account.caller().at_s
    if theirs_s is None:
        return "AWS sent no time"
    off_s = before_s - theirs_s
    if abs(off_s) > 60:
        raise Wrong(
            f"this machine is {abs(off_s):.0f} s {'ahead of' if off_s > 0 else 'behind'} AWS",
            "set the clock, and keep it by NTP (timedatectl set-ntp true)",
        )
    return f"within {max(abs(off_s), 1):.0f} s of AWS"


def check_server(_setup: Setup) -> str:
    """Check that the Prefect server answers, accepts our login, and has our deployments, with a worker for them."""
    from prefect import __version__
    from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL

    url, secret = PREFECT_API_URL.value(), PREFECT_API_AUTH_STRING.value()
    auth = "" if secret is None else secret.get_secret_value()
    if url is None:
        up = find_announcement(DEFAULT_DIRECTORY)
        if up is None:
            raise Wrong("PREFECT_API_URL is not set", "set it, as in http://HOST:4200/api, or start `proteus up`")
        url, auth = up.api_url, up.auth
    with httpx.Client(base_url=url.rstrip("/"), timeout=_ANSWER_S, auth=basic_auth(auth)) as api:
        version = str(_answer(api, "GET", "/admin/version", url))
        ours = _release(__version__)
        if _release(version) != ours:
            raise Wrong(
                f"the server at {url} is Prefect {version}, and this program has {__version__}",
                f"install Prefect {ours}.* on the server",
            )
        names = {row["name"] for row in _answer(api, "POST", "/deployments/filter", url)}
        if missing := sorted(_deployments() - names):
            raise Wrong(f"deployments are missing: {', '.join(missing)}", "run `prefect --no-prompt deploy --all`")
        workers = _answer(api, "POST", f"/work_pools/{POOL}/workers/filter", url)
    online = [row["name"] for row in workers if row["status"] == "ONLINE"]
    if not online:
        raise Wrong("no worker is online", f"run `prefect worker start --pool {POOL}`")
    return f"Prefect {version} at {url}: all deployments, {len(online)} workers online"


def _release(version: str) -> str:
    found = re.match(r"\d+\.\d+", version)
    return found[0] if found else version


def _deployments() -> set[str]:
    record: Mapping[str, Any] = read_yaml(repository() / "prefect.yaml")
    return {str(row["name"]) for row in record["deployments"]}


def _answer(api: httpx.Client, method: str, path: str, url: str) -> Any:
    try:
        answer = api.request(method, path, json=None if method == "GET" else {})
    except httpx.HTTPError as error:
        raise Wrong(
            f"no server answers at {url} ({error or type(error).__name__})", "start it, or fix PREFECT_API_URL"
        ) from None
    if answer.status_code == httpx.codes.UNAUTHORIZED:
        raise Wrong(
            f"the server at {url} refuses the login",
            "set PREFECT_API_AUTH_STRING to its user:password",
        )
    if answer.status_code == httpx.codes.NOT_FOUND and path.startswith("/work_pools"):
        raise Wrong(f"the work pool {POOL} is missing", f"run `prefect work-pool create {POOL} --type process`")
    if not answer.is_success:
        raise Wrong(f"the server at {url} answers {path} with {answer.status_code}", "read its log")
    try:
        return answer.json()
    except ValueError:
        raise Wrong(f"{url} is not a Prefect API", "fix PREFECT_API_URL; it ends in /api") from None
