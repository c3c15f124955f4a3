"""The poller of notices, against the real metadata service and against bad ones."""

import asyncio
import json
import logging
import subprocess
import sys
import threading
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer

import httpx
import pytest
from aiohttp import web

from proteus_spot.infra.ec2.notice_poller import Notice, NoticePoller, report_notice
from proteus_spot.infra.simulated_ec2.faults import Fault, FaultKind
from proteus_spot.infra.simulated_ec2.market import SimSpotMarket
from tests.support.market_servers import T0, TRACES, ManualClock, request, served, sold


@pytest.fixture
def clock():
    return ManualClock(T0 + 10)


def polls(poller, *between):
    """Poll once, and once more after each of `between`; return all results."""

    async def run():
        found = [await poller.poll()]
        for step in between:
            step()
            found.append(await poller.poll())
        await poller.close()
        return found

    return asyncio.run(run())


def test_a_notice_is_found_when_it_is_given(clock, tmp_path):
    sim = SimSpotMarket(TRACES, sold, clock.now_s)
    (fact,) = sim.launch(request("t"))
    with served(sim, clock, tmp_path) as endpoint:
        poller = NoticePoller(f"{endpoint.metadata_url}/{fact.instance_id}/", clock)
        none, notice = polls(poller, lambda: setattr(clock, "at_s", T0 + 890))
    assert none is None
    assert notice == Notice("terminate", datetime.fromtimestamp(T0 + 1000, UTC), 110.0)


class FakeMetadata:
    """A metadata service with scripted answers; counts its requests."""

    def __init__(self):
        self.tokens = self.looks = self.connections = 0
        self.valid = None
        self.answer = (404, "")
        self._seen = set()

    async def token(self, http_request):
        self.tokens += 1
        self.valid = f"token-{self.tokens}"
        return web.Response(text=self.valid)

    async def look(self, http_request):
        self.looks += 1
        self._seen.add(http_request.transport.get_extra_info("peername"))
        self.connections = len(self._seen)
        if http_request.headers.get("X-aws-ec2-metadata-token") != self.valid:
            return web.Response(status=401)
        return web.Response(status=self.answer[0], text=self.answer[1])

    def polls(self, clock, *between):
        async def run():
            app = web.Application()
            app.router.add_put("/latest/api/token", self.token)
            app.router.add_get("/latest/meta-data/spot/instance-action", self.look)
            runner = web.AppRunner(app)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            poller = NoticePoller("http://{}:{}".format(*runner.addresses[0][:2]), clock)
            try:
                found = [await poller.poll()]
                for step in between:
                    step()
                    found.append(await poller.poll())
                return found
            finally:
                await poller.close()
                await runner.cleanup()

        return asyncio.run(run())


def test_one_token_and_one_connection_serve_many_looks(clock):
    service = FakeMetadata()
    assert service.polls(clock, *[lambda: None] * 5) == [None] * 6
    assert (service.tokens, service.looks, service.connections) == (1, 6, 1)


def test_an_expired_token_is_renewed(clock):
    service = FakeMetadata()

    def expire():
        service.valid = "another"
        service.answer = (200, '{"action": "stop", "time": "2016-03-01T00:00:20Z"}')

    _, notice = service.polls(clock, expire)
    assert notice == Notice("stop", datetime.fromtimestamp(T0 + 20, UTC), 10.0)
    assert service.tokens == 2


def test_nonsense_is_no_notice_and_is_logged_once(clock, caplog):
    service = FakeMetadata()
    answers = [(500, ""), (200, "what"), (200, "[]"), (200, '{"action": "terminate"}'), (200, '{"time": "soon"}')]

    def say(answer):
        return lambda: setattr(service, "answer", answer)

    with caplog.at_level(logging.WARNING):
        assert service.polls(clock, *map(say, answers)) == [None] * 6
    assert len([record for record in caplog.records if record.name == "proteus_spot.infra.ec2.notice_poller"]) == 1
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        service.answer = (500, "")
        service.polls(clock, say((404, "")), say((500, "")))
    assert len([record for record in caplog.records if record.name == "proteus_spot.infra.ec2.notice_poller"]) == 2


def test_no_server_is_no_notice(clock, caplog):
    with caplog.at_level(logging.WARNING):
        assert polls(NoticePoller("http://127.0.0.1:9", clock), lambda: None) == [None, None]
    assert len([record for record in caplog.records if record.name == "proteus_spot.infra.ec2.notice_poller"]) == 1


def test_the_service_is_found_by_the_environment(clock, monkeypatch):
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:9/machine")
    poller = NoticePoller(clock=clock)
    assert poller.base_url == httpx.URL("http://127.0.0.1:9/machine/latest/")
    monkeypatch.delenv("AWS_EC2_METADATA_SERVICE_ENDPOINT")
    assert NoticePoller(clock=clock).base_url == httpx.URL("http://169.254.169.254/latest/")
    polls(poller)


# -- reporting to the control plane -----------------------------------------------------------------------------------

ABOUT = {"job_id": "job", "allocation_id": "job-buy-0", "takes_at_s": T0 + 900}


@contextmanager
def events_api(*answers):
    """Yield the URL of a Prefect API that answers posts with these status codes in turn, and the list of posts."""
    posts, codes = [], list(answers)

    class Api(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            posts.append((self.path, json.loads(body)))
            self.send_response(codes.pop(0))
            self.end_headers()

        def log_message(self, *_):
            """Log nothing."""

    with HTTPServer(("127.0.0.1", 0), Api) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/api", posts
        server.shutdown()
        thread.join()


def test_a_notice_is_reported_again_while_the_api_is_busy_as_the_same_event():
    with events_api(503, 503, 204) as (url, posts):
        report_notice(url, ABOUT)
    assert [path for path, _ in posts] == ["/api/events"] * 3
    assert len({events[0]["id"] for _, events in posts}) == 1
    assert posts[0][1][0]["payload"] == ABOUT
    assert posts[0][1][0]["resource"]["prefect.resource.id"] == "spot.allocation.job-buy-0"


def test_a_notice_that_is_refused_is_not_reported_again():
    with events_api(401, 204) as (url, posts):
        with pytest.raises(httpx.HTTPStatusError):
            report_notice(url, ABOUT)
        assert len(posts) == 1


def test_no_package_is_imported_when_a_notice_is_reported() -> None:
    """In a thread, an import beside another one may fail (Python 3.11.7: SystemError of an AST constructor)."""
    command = (
        "import sys; from proteus_spot.infra.ec2.notice_poller import report_notice; before = set(sys.modules)\n"
        "try: report_notice.__wrapped__('http://127.0.0.1:1', {'allocation_id': 'a'})\n"
        "except Exception as error: print(type(error).__name__, *sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True, timeout=60)
    error, *modules = done.stdout.split()
    assert error == "ConnectError"
    assert set(modules) <= {"encodings.idna", "stringprep"}


def test_a_rebalance_recommendation_is_found_apart_from_a_notice(clock, tmp_path):
    sim = SimSpotMarket(TRACES, sold, clock.now_s)
    (fact,) = sim.launch(request("t"))

    async def looks(poller):
        found = [await poller.poll_rebalance()]
        sim.add_fault(Fault(FaultKind.REBALANCE, instance_id=fact.instance_id))
        found += [await poller.poll_rebalance(), await poller.poll()]
        await poller.close()
        return found

    with served(sim, clock, tmp_path) as endpoint:
        found = asyncio.run(looks(NoticePoller(f"{endpoint.metadata_url}/{fact.instance_id}/", clock)))
    assert found == [None, datetime.fromtimestamp(T0 + 10, UTC), None]
