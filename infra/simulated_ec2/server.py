"""A simulated EC2 on this machine: the EC2 API, the metadata service and machines as processes, in one server.

``python -m proteus_spot.infra.simulated_ec2.server --prices FILE --clock SETTING --work-dir DIR --announce FILE``.
`SimSpotMarket` decides what happens; this module connects it to HTTP and to the processes. Due changes happen at their
moment of market time, also when that jumps (the changes in between happen in order, each at its own second). However
the server ends, no machine survives it.

Access: a request must be signed with a key id of this server (`boto3` does so if it finds that key among its
credentials), name this server as its Host, and come from no web page (no foreign Origin): the user-data of a purchase
runs on this machine, and neither a page in the user's browser nor another user of the machine may have it run. The key
is made at the start, stands in the announcement (a file for its owner alone), and is enough: the signature is not
checked.

Beside the API: ``GET /_market/log`` returns the market's own record of instances, ``POST /_market/fault`` takes a
`Fault`; both want the key id in the header ``X-Proteus-Key``.
"""

import argparse
import asyncio
import contextlib
import hmac
import json
import os
import secrets
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import psutil
from aiohttp import web
from aiohttp.typedefs import Handler

from proteus_spot.bidding.market.model import InstanceFact
from proteus_spot.bidding.market.spot_market import MarketError
from proteus_spot.bidding.market.traces import TraceSet
from proteus_spot.infra.clock import Clock, open_clock
from proteus_spot.infra.errors import InputError, ProteusError
from proteus_spot.infra.market_data.capacity_files import read_capacities
from proteus_spot.infra.processes.surroundings import settle
from proteus_spot.infra.simulated_ec2.account_services import SERVICES, AccountServices, service_error
from proteus_spot.infra.simulated_ec2.actions import Ec2Actions
from proteus_spot.infra.simulated_ec2.faults import Fault, FaultKind
from proteus_spot.infra.simulated_ec2.held_instances import ACCOUNT
from proteus_spot.infra.simulated_ec2.instances import Machines
from proteus_spot.infra.simulated_ec2.market import SimSpotMarket
from proteus_spot.infra.simulated_ec2.metadata_service import Metadata
from proteus_spot.infra.simulated_ec2.rules.machine_changes import ChangeKind, NoticeMode
from proteus_spot.infra.simulated_ec2.stored_market import file_digest, read_state, traces_digest, write_state
from proteus_spot.infra.simulated_ec2.wire_protocol import Ec2Error, Ec2Protocol, signer_of

#: Maximum real seconds between two checks of the clock, the scripts and the parent.
_LOOK_S = 0.05
_METADATA = "/metadata"
#: Header of the key id on the routes of the market itself, and the names by which a machine calls itself.
KEY_HEADER = "X-Proteus-Key"
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class Endpoint:
    """The servers of one market.

    Parameters
    ----------
    market : the simulated market; its clock must be `clock`.
    clock : market time.
    work_dir : directory of the machines' disks.
    keys : the account of each access key id that requests may be signed with.
    region : name of the region.
    passed : variables for every machine's environment.
    host, port : address to listen on; port 0 takes a free one.
    remember : called whenever an instance has changed, before the buyer gets the answer.
    """

    def __init__(
        self,
        market: SimSpotMarket,
        clock: Clock,
        work_dir: Path,
        keys: Mapping[str, str],
        region: str = "us-east-1",
        passed: Mapping[str, str] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        remember: Callable[[], None] = lambda: None,
    ) -> None:
        self._market = market
        self._clock = clock
        self._host = host
        self._port = port
        self._protocol = Ec2Protocol()
        self._keys = dict(keys)
        accounts = sorted(set(keys.values()))
        self._actions = {account: Ec2Actions(market, region, account) for account in accounts}
        self._services = {account: AccountServices(market, region, account) for account in accounts}
        self._machines = Machines(work_dir, secrets.token_hex(8), passed or {})
        self._region = region
        self._remember = remember
        self.url = ""

    @property
    def metadata_url(self) -> str:
        """URL of the metadata service; an instance's own is below it, under its id."""
        return self.url + _METADATA

    async def start(self) -> None:
        """Start to listen, and start the reaper."""
        loop = asyncio.get_running_loop()
        app = web.Application(client_max_size=2**22, middlewares=[self._refuse_web_pages])
        app.router.add_post("/", self._api)
        app.router.add_get("/_market/log", self._log)
        app.router.add_post("/_market/fault", self._fault)
        Metadata(self._market, self._region, self.catch_up, loop.time).add_routes(app, _METADATA)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self._port)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        self._machines.open()

    async def run(self, parent: psutil.Process | None = None) -> None:
        """Apply due changes until cancelled or until `parent` has ended."""
        while parent is None or _is_alive(parent):
            self.catch_up()
            due_s = self._market.next_due_s
            wait_s = _LOOK_S if due_s is None else (due_s - self._clock.now_s()) / self._clock.scale
            await asyncio.sleep(min(max(wait_s, 0.001), _LOOK_S))

    async def stop(self) -> None:
        """Kill every machine and stop listening."""
        self._machines.close()
        await self._runner.cleanup()

    def catch_up(self) -> None:
        """Bring machines and instances in line: changes of the market go to the processes, exits of scripts back."""
        for instance_id in self._machines.collect():
            self._market.shut_down(instance_id)
        changes = self._market.advance()
        if changes:
            self._remember()
        for change in changes:
            if change.kind is ChangeKind.RUNNING and not self._market.has_ended(change.instance_id):
                user_data = self._market.request_of(change.instance_id).user_data
                self._machines.start(change.instance_id, user_data, self.metadata_url)
            elif change.kind is ChangeKind.REBOOTED and not self._market.has_ended(change.instance_id):
                self._machines.reboot(change.instance_id, self.metadata_url)
            elif change.kind in (ChangeKind.EVICTED, ChangeKind.STOPPED):
                self._machines.kill(change.instance_id)
            elif change.kind is ChangeKind.TERMINATED:
                self._machines.terminate(change.instance_id)

    @web.middleware
    async def _refuse_web_pages(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse what a browser sends for a page of another site, also where that site's name leads here."""
        names = {*_LOOPBACK, self._host}
        origin = request.headers.get("Origin")
        if urlsplit(f"//{request.host}").hostname not in names or (origin is not None and origin != self.url):
            raise web.HTTPForbidden(text="this server answers requests to its own address alone, from no web page")
        return await handler(request)

    def _account(self, key_id: str) -> str | None:
        """Return the account of a key id, in a time that says nothing about the keys."""
        found = [account for key, account in self._keys.items() if hmac.compare_digest(key.encode(), key_id.encode())]
        return found[0] if found else None

    def _require_key(self, request: web.Request) -> None:
        if self._account(request.headers.get(KEY_HEADER, "")) is None:
            raise web.HTTPForbidden(text=f"{KEY_HEADER}: want the access key id of this server")

    async def _api(self, request: web.Request) -> web.Response:
        faults = self._market.faults
        service = "ec2"
        try:
            key_id, service = signer_of(request.headers.get("Authorization"))
            account = self._account(key_id)
            if account is None:
                raise Ec2Error("AuthFailure", "AWS was not able to validate the provided access credentials")
            self.catch_up()
            if service in SERVICES:
                target = request.headers.get("X-Amz-Target", "")
                answer = self._services[account].answer(service, target, await request.text())
                return web.Response(status=answer.status, text=answer.body, content_type=answer.content_type)
            actions = self._actions[account]
            action, params = self._protocol.read(await request.text())
            operation = actions.operation(action)
            status, body = 200, self._protocol.write(action, actions.carry_out(action, params))
            self.catch_up()
            delay = faults.strikes(FaultKind.DELAY, operation, self._market.now_s)
            if delay is not None:
                await asyncio.sleep(delay.delay_s)
            if faults.strikes(FaultKind.LOSE_ANSWER, operation, self._market.now_s) is not None:
                assert request.transport is not None
                request.transport.close()
        except (Ec2Error, MarketError) as error:
            status, body = self._protocol.write_error(error.code, error.message)
            if service in SERVICES:
                answer = service_error(service, status, error.code, error.message)
                return web.Response(status=answer.status, text=answer.body, content_type=answer.content_type)
        return web.Response(status=status, text=body, content_type="text/xml")

    async def _log(self, request: web.Request) -> web.Response:
        self._require_key(request)
        return web.json_response(self.log())

    def log(self) -> list[dict[str, object]]:
        """Return the market's own record of instances, as JSON objects."""
        self.catch_up()
        return [record_of(fact) for fact in self._market.log()]

    async def _fault(self, request: web.Request) -> web.Response:
        self._require_key(request)
        try:
            self._market.add_fault(Fault.from_record(await request.json()))
        except ValueError as error:
            raise web.HTTPBadRequest(text=str(error)) from None
        self.catch_up()
        return web.json_response({"now_s": self._market.now_s})


def record_of(fact: InstanceFact) -> dict[str, object]:
    """Return the JSON object of an instance in the log."""
    return {**asdict(fact), "market": str(fact.market)}


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m proteus_spot.infra.simulated_ec2.server", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--prices", type=Path, required=True, help="price file to replay")
    parser.add_argument("--catalog", type=Path, help="CSV of instance types; default: the shipped one")
    parser.add_argument("--clock", default="system", help="`system`, or a scaled clock's file")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--work-dir", type=Path, required=True, help="directory of the machines' disks")
    parser.add_argument(
        "--announce", type=Path, required=True, help="file for url, access_key_id, metadata_url, pid once it is up"
    )
    parser.add_argument("--log", type=Path, help="file for the market's record of instances, written at the end")
    parser.add_argument("--state", type=Path, help="file of what was sold; a later run continues from it")
    parser.add_argument("--region", default="us-east-1")
    parser.add_argument("--notice-s", type=int, default=120, help="market seconds from notice to eviction")
    parser.add_argument("--notice", type=NoticeMode, choices=list(NoticeMode), default=NoticeMode.LEAD)
    parser.add_argument("--boot-s", type=int, default=0, help="market seconds from launch to boot")
    parser.add_argument("--max-life-s", type=int, help="age in market seconds at which a spot instance is evicted")
    parser.add_argument("--availability", action="append", default=[], metavar="[TYPE/ZONE=]FILE",
                        help="availability trace: how many spot machines there are, whatever is bid")  # fmt: skip
    parser.add_argument("--availability-from", type=int, default=0, help="market second at which these begin")
    parser.add_argument("--seed", default=None, help="seed of the instance ids")
    parser.add_argument("--pass-env", action="append", default=[], metavar="NAME", help="variable for every machine")
    parser.add_argument("--parent-pid", type=int, help="end when this process ends")
    return parser.parse_args()


def build_market(options: argparse.Namespace, clock: Clock) -> SimSpotMarket:
    """Return the market that the command's options describe; `InputError` for invalid files."""
    from proteus_spot.infra.market_data.catalogs import read_catalog
    from proteus_spot.infra.market_data.price_files import read_prices

    day = datetime.fromtimestamp(clock.now_s(), UTC).date()
    traces, catalog = read_prices(options.prices), read_catalog(options.catalog)
    return SimSpotMarket(
        traces,
        lambda market: catalog.find(market, day),
        clock.now_s,
        notice_s=options.notice_s,
        notice=options.notice,
        boot_s=options.boot_s,
        max_life_s=options.max_life_s,
        seed=options.seed if options.seed is not None else secrets.token_hex(8),
        capacity=_capacity(options, traces),
    )


def _capacity(options: argparse.Namespace, traces: TraceSet) -> TraceSet:
    capacity = read_capacities(options.availability, options.availability_from)
    for market in capacity:
        if market not in traces:
            raise InputError(f"--availability: {market} has no prices in {options.prices}; name one that has")
    return capacity


def _open_state(market: SimSpotMarket, options: argparse.Namespace) -> Callable[[], None]:
    """Restore the market from its state file, if it has one; return the function that updates that file."""
    if options.state is None:
        return lambda: None
    digest = file_digest(options.prices) + traces_digest(market.capacity.traces)
    saved = read_state(options.state)
    if saved is not None:
        if saved.prices != digest:
            hint = (
                f" (or --availability {', '.join(options.availability)} not its traces)" if options.availability else ""
            )
            raise InputError(
                f"--prices {options.prices}: is not the file that {options.state} continues from{hint}; name that"
            )
        market.restore(saved)
    return lambda: write_state(options.state, market.state(digest))


async def _serve(options: argparse.Namespace) -> None:
    loop = asyncio.get_running_loop()
    clock = open_clock(options.clock)
    market = build_market(options, clock)
    remember = _open_state(market, options)
    key_id = f"proteus{secrets.token_hex(16)}"
    endpoint = Endpoint(
        market,
        clock,
        options.work_dir.absolute(),
        {key_id: ACCOUNT},
        options.region,
        {name: os.environ[name] for name in options.pass_env if name in os.environ},
        options.host,
        options.port,
        remember,
    )
    parent = psutil.Process(options.parent_pid) if options.parent_pid is not None else None
    await endpoint.start()
    try:
        announcement = {
            "url": endpoint.url,
            "access_key_id": key_id,
            "metadata_url": endpoint.metadata_url,
            "pid": os.getpid(),
        }
        unannounced = options.announce.with_suffix(".new")
        unannounced.unlink(missing_ok=True)
        unannounced.touch(mode=0o600)
        unannounced.write_text(json.dumps(announcement))
        running = asyncio.create_task(endpoint.run(parent))
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, running.cancel)
        unannounced.replace(options.announce)
        with contextlib.suppress(asyncio.CancelledError):
            await running
    finally:
        try:
            if options.log is not None:
                options.log.write_text(json.dumps(endpoint.log(), indent=1))
            remember()
        finally:
            await endpoint.stop()


def main() -> int:
    """Run until a signal or the parent's end; return the exit code."""
    settle()
    # The machines inherit the signal handling: set it as a fresh login has it.
    for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    try:
        asyncio.run(_serve(_options()))
    except ProteusError as error:
        print(f"ec2_endpoint: {error}", file=sys.stderr)
        return error.exit_code
    except psutil.NoSuchProcess as error:
        print(f"ec2_endpoint: --parent-pid {error.pid}: there is no such process", file=sys.stderr)
        return InputError.exit_code
    except OSError as error:
        print(f"ec2_endpoint: {error}", file=sys.stderr)
        return ProteusError.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
