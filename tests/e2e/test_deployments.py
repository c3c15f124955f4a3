"""prefect.yaml as it is, on a real server with a process worker, at scale 1: one market, one job, killed twice.

The tests share one server and stand in the order of a story: what waits long (a scheduled tick, three missed
heartbeats) waits while the next chapter runs.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from proteus_spot.bidding.market.model import DAY_S, HOUR_S, Market
from proteus_spot.bidding.market.traces import Trace, TraceSet
from proteus_spot.flows.automations import HEARTBEAT_S, NAME, SILENCE_S
from proteus_spot.infra.clock import SystemClock
from proteus_spot.infra.ec2.notice_poller import notice_event
from proteus_spot.infra.nodes.controller_client import ControllerClient
from proteus_spot.infra.state.records import AllocationRecord, IntentState, JobState
from proteus_spot.studies.times import day
from tests.support import slow_apps as paced
from tests.support.prefect import Deployed, rendezvous, wait_until, without_settings
from tests.support.schedules import examples
from tests.support.timeouts import PATIENCE

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

JOB = "killed-twice"
MARKET = Market("c4.large", "us-east-1a")
TICK_S = 120.0
T0 = 1464739200  # 2016-06-01T00:00:00Z
START_S = T0 + 14 * DAY_S
NOTIFIED = ("job done", "job failed", "budget at 80 %", "deadline at risk", "launch failed", "orphan found", "no tick")
#: Time at which the price rises above every bid, and seconds before it (within the notice) to which the clock jumps.
#: It lies within the first lease of every machine, 15 minutes: none ends by the jump.
SPIKE_S = START_S + 12 * 60
LEFT_S = 115
PARTITIONS = 4
#: They take at least ten minutes, until the test lets the job hurry.
CLOCKS = 2000
SPEC: dict[str, Any] = {
    "job_id": JOB,
    "training": {
        "data": "digits",
        "app": "slow_apps:Slow",
        "code": str(Path(paced.__file__)),
        "partitions": PARTITIONS,
        "shards": 2,
        "clocks": CLOCKS,
    },
    "reliable": {"count": 1, "instance_type": "c4.large", "zone": "us-east-1a"},
    "transient": {"markets": [str(MARKET)], "allocation_vcpus": 2, "max_vcpus": 2, "billing": "hourly-refund"},
}


def market() -> TraceSet:
    """One market: calm for two weeks but for an hour a day, calm at first in our time, then out of reach."""
    days = np.arange(14)[:, None] * DAY_S + np.array([0, 12 * HOUR_S, 13 * HOUR_S])[None, :]
    times = np.concatenate([T0 + days.ravel(), [START_S, SPIKE_S, SPIKE_S + 6 * HOUR_S, START_S + DAY_S]])
    prices = np.concatenate([np.tile([20_000, 600_000, 20_000], 14), [20_000, 900_000, 20_000, 21_000]])
    return TraceSet({MARKET: Trace(times, prices)})


@dataclass
class Story:
    """State that one test passes to the next."""

    deployed: Deployed
    runs: dict[str, str] = field(default_factory=dict)
    controller_pid: int = 0

    def controller(self) -> ControllerClient:
        """Return the client of the job's controller."""
        return ControllerClient(rendezvous(self.deployed.blob_url, JOB)["control"], 10.0 * PATIENCE)

    def status(self) -> dict[str, Any]:
        """Return the status of the job's controller."""
        return self.controller().status()

    def node_state(self, name: str) -> str:
        """Return the state of a node."""
        return next(str(node["state"]) for node in self.status()["nodes"] if node["name"] == name)

    def kill(self, run: str) -> None:
        """Kill the process of a run's flow."""
        self.deployed.flow_process(self.runs[run]).kill()


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    with pytest.MonkeyPatch.context() as patch:
        without_settings(patch)
        deployed = Deployed(tmp_path_factory.mktemp("deployed"), market(), START_S)
        with deployed:
            yield Story(deployed)
        left = [process.cmdline() for process in deployed.processes()]
        assert not left, f"still running: {left}"


def test_what_is_deployed_is_what_the_file_says(story: Story) -> None:
    tick = story.deployed.get("/deployments/name/allocation-tick/default")
    assert [s["schedule"]["interval"] for s in tick["schedules"] if s["active"]] == [TICK_S]
    assert (tick["concurrency_limit"], tick["concurrency_options"]) == (None, None), "a dead tick would keep its slot"
    reap = story.deployed.get("/deployments/name/reap/default")
    assert [s["schedule"]["interval"] for s in reap["schedules"] if s["active"]] == [600.0]
    others = (
        "train/train",
        "handle-eviction/default",
        "renew-hour/default",
        "ingest-prices/default",
        "backtest/backtest",
        "sweep/sweep",
    )
    assert all(story.deployed.deployment_id(name) for name in others)


def test_registering_the_automations_twice_leaves_one_of_each(story: Story) -> None:
    said = [story.deployed.python("-m", "proteus_spot.flows.automations").splitlines() for _ in range(2)]
    names = [NAME, *(f"proteus: {what}" for what in NOTIFIED)]
    for lines, outcome in zip(said, ("created", "updated"), strict=True):
        assert lines == [f"{name}: {outcome}" for name in names]
    refused = story.deployed.refused("-m", "proteus_spot.flows.automations", "--notify", "slack-webhook/none")
    assert refused.startswith(
        "proteus_spot.flows.automations: --notify slack-webhook/none: the server has no such block; "
    )
    found = story.deployed.post("/automations/filter", automations={"name": {"any_": [NAME]}})
    assert [(one["enabled"], one["trigger"]["within"]) for one in found] == [(True, float(SILENCE_S))]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"job_id": "Not An Id"}, "field 'spec.job_id'. Failure reason: 'Not An Id' does not match"),
        ({"training": {"clocks": 0}}, "field 'spec.training.clocks'. Failure reason: 0 is less than the minimum of 1"),
        ({"colour": "red"}, "field 'spec'. Failure reason: Additional properties are not allowed ('colour'"),
        (
            {"training": {"clocks": 1, "data": "https://bucket.example/x.csv?X-Amz-Signature=00"}},
            "field 'spec.training.data'. Failure reason: ",
        ),
        ({"training": None}, "field 'spec.training'. Failure reason: None is not of type 'object'"),
    ],
)
def test_a_bad_job_is_refused_before_there_is_a_run(story: Story, change: dict[str, Any], said: str) -> None:
    before = len(story.deployed.runs("train/train"))
    answer = story.deployed.ask("train/train", {"spec": SPEC | change})
    assert answer.status_code == 409, answer.text
    assert said in answer.json()["detail"]
    assert len(story.deployed.runs("train/train")) == before


def test_what_no_schema_can_say_is_refused_before_anything_is_written(story: Story) -> None:
    endless = SPEC | {"training": {"data": "digits"}}
    run = story.deployed.await_state(story.deployed.start("train/train", {"spec": endless}), "FAILED", 60)
    wanted = "spec.training: Value error, a job needs an end: give clocks, passes, hours, or several of them"
    assert wanted in run["state"]["message"]
    assert story.deployed.store.jobs.list_jobs() == []
    assert story.deployed.market_log() == []


def test_a_run_and_its_worker_are_killed_and_training_goes_on(story: Story) -> None:
    deployed = story.deployed
    first = story.runs["first"] = deployed.start("train/train", {"spec": SPEC})
    deployed.await_task(first, "follow training", 90)
    wait_until(lambda: story.status()["clock"] > 0, "the first clock")
    story.controller_pid = rendezvous(deployed.blob_url, JOB)["pid"]

    deployed.kill_worker()
    story.kill("first")

    clock = story.status()["clock"]
    wait_until(lambda: story.status()["clock"] > clock + 1, "clocks without a flow that follows")
    assert deployed.run(first)["state_type"] == "RUNNING", "no process was left to report its end"
    deployed.start_worker()


def handled(deployed: Deployed) -> dict[str, str]:
    """Return the handler's runs by the allocation of their notice."""
    runs = deployed.runs("handle-eviction/default")
    return {run["parameters"]["notice"]["allocation_id"]: run["id"] for run in runs}


def fired(deployed: Deployed, name: str) -> list[dict[str, Any]]:
    """Return how often an automation has fired, from the event feed."""
    (automation,) = deployed.post("/automations/filter", automations={"name": {"any_": [name]}})
    wanted = {
        "event": {"name": ["prefect.automation.triggered"]},
        "resource": {"id": [f"prefect.automation.{automation['id']}"]},
    }
    found: list[dict[str, Any]] = deployed.post("/events/filter", filter=wanted)["events"]
    return found


def report(deployed: Deployed, *notices: dict[str, Any]) -> None:
    """Report notices as the controller does, but at once, and wait for a server that is busy."""
    now = datetime.now(UTC).isoformat()
    answer = deployed.send("POST", "/events", [notice_event(notice) | {"occurred": now} for notice in notices])
    assert answer.is_success, answer.text


def wait_logged(deployed: Deployed, run_id: str, line: str) -> None:
    """Wait until a run's log has a line; its process sends the last ones when the run has ended."""
    wait_until(lambda: re.search(line, deployed.logs(run_id)) is not None, f"{line!r} in the run's log")


def bought_on_spot(deployed: Deployed) -> list[AllocationRecord]:
    """Return what the job has bought at a bid."""
    return [record for record in deployed.store.purchases.allocations(JOB) if record.allocation.bid_micros is not None]


def test_a_new_run_attaches_and_a_notice_reaches_the_handler(story: Story) -> None:
    deployed = story.deployed
    second = story.runs["second"] = deployed.start("train/train", {"spec": SPEC})
    tick = deployed.start("allocation-tick/default", {"job_id": JOB})
    deployed.await_state(tick, "COMPLETED", 60)
    # A scheduled one may have been at it just then, or been killed with the worker: this one leaves the job to it then.
    wait_until(lambda: bool(bought_on_spot(deployed)), "a tick that buys a spot machine", 2 * TICK_S / PATIENCE)
    (spot,) = bought_on_spot(deployed)
    wait_until(lambda: sum(node["state"] == "ready" for node in story.status()["nodes"]) == 2, "the spot machine", 40)

    # Nothing else is for sale until the price is out of reach, so that what is bought stays countable.
    deployed.market_fault(kind="capacity", market=str(MARKET), until_s=SPIKE_S)
    deployed.clock.jump_to(
        SPIKE_S - LEFT_S
    )  # the market gives notice: node -> controller -> event -> automation -> run

    (machine,) = spot.instance_ids
    notice = {"job_id": JOB, "allocation_id": spot.allocation_id, "instance_id": machine, "takes_at_s": SPIKE_S}
    wait_until(lambda: bool(deployed.runs("handle-eviction/default")), "the handler's run", 30)
    (run,) = deployed.runs("handle-eviction/default")
    assert run["parameters"] == {"notice": notice}
    deployed.await_state(run["id"], "COMPLETED", 40)
    told = [
        e.record for e in deployed.store.journals.entries(JOB) if e.record["kind"] in ("NoticeSeen", "MachineNoticed")
    ]
    assert [(one["allocation_id"], one["takes_at_s"]) for one in told] == [(spot.allocation_id, SPIKE_S)]
    assert deployed.run(run["id"])["tags"] == [f"job:{JOB}"]
    assert deployed.run(run["id"])["name"].startswith(f"{JOB}: ")

    report(deployed, notice)  # reported twice (after a restart): the same event, no second run
    burst = [{"job_id": JOB, "allocation_id": f"another-{number}", "takes_at_s": SPIKE_S} for number in range(3)]
    report(deployed, *burst)  # in one request: a busy server would take longer for three than a burst lasts
    wait_until(lambda: len(deployed.runs("handle-eviction/default")) == 2, "the run of a burst of notices", 30)
    assert handled(deployed).keys() - {spot.allocation_id} <= {other["allocation_id"] for other in burst}
    (handler,) = (run_id for name, run_id in handled(deployed).items() if name != spot.allocation_id)
    deployed.await_state(handler, "COMPLETED", 60)
    assert len(deployed.runs("handle-eviction/default")) == 2, "one run handles a burst"
    assert deployed.at_task(second, "follow training")


def test_a_crashed_run_is_retried_and_the_job_ends_as_if_nothing_had_been(story: Story) -> None:
    deployed = story.deployed
    second = story.runs["second"]
    story.kill("second")
    deployed.await_state(second, "CRASHED", 30)  # its worker lives and reports it
    before = story.status()
    deployed.retry(second)
    deployed.await_task(second, "follow training", 40, attempt=2)
    beat = deployed.flow_process(second).environ()["PREFECT_FLOWS_HEARTBEAT_FREQUENCY"]
    assert beat == str(HEARTBEAT_S), "a run that beats more rarely than the automation looks would be taken for dead"
    assert story.status()["state"] == "running"
    assert story.status()["clock"] > before["clock"]
    assert rendezvous(deployed.blob_url, JOB)["pid"] == story.controller_pid

    # The market has given the handler time, however slow this computer is; now the machine leaves, and is taken.
    (machine,) = bought_on_spot(deployed)[0].instance_ids
    assert story.controller().drain([machine], 30.0)["refused"] == []
    wait_until(lambda: story.node_state(machine) in ("drained", "lost"), "the machine to have left")
    deployed.clock.jump_to(SPIKE_S)
    wait_until(lambda: "evicted" in [one["end_cause"] for one in deployed.market_log()], "the eviction")
    # The job ends when a tick has booked the eviction: none is due at this moment.
    deployed.await_state(deployed.start("allocation-tick/default", {"job_id": JOB}), "COMPLETED", 60)
    (deployed.directory / "blobs" / paced.HURRY).touch()
    deployed.await_state(second, "COMPLETED", 90)

    wait_until(lambda: deployed.run(second)["name"] == f"{JOB}: finished", "the run's name with its verdict")
    assert deployed.run(second)["tags"] == [f"job:{JOB}"]
    for line in (
        re.escape(f"{JOB}: its page: {deployed.ui_url}/artifacts/artifact/"),
        r"clock \d+, loss \d\.\d+, \$\d\.\d+ spent, \d nodes ready, \d evictions, holding ",
        re.escape("the market took 1 x c4.large/us-east-1a"),
    ):
        wait_logged(deployed, second, line)
    wait_until(lambda: len(fired(deployed, "proteus: job done")) == 1, "the automation that notifies of the end")
    assert fired(deployed, "proteus: job failed") == []

    job = deployed.store.jobs.job(JOB)
    assert job.state is JobState.FINISHED
    assert job.result is not None
    result = dict(job.result)
    assert result["clocks"] == CLOCKS
    assert [clock for clock, _ in result["losses"]] == list(range(1, CLOCKS + 1)), "a clock twice, or never"
    assert (result["repeated_micro_tasks"], result["lost_micro_tasks"]) == (0, 0)
    assert sum(result["micro_tasks_done"].values()) == CLOCKS * PARTITIONS

    bought = [(one["token"], one["bid_micros"] is None) for one in deployed.market_log()]
    assert sum(on_demand for _, on_demand in bought) == 1, bought
    assert len({token for token, _ in bought}) == len(bought) == 2, bought
    reliable = [
        intent for intent in deployed.store.purchases.intents(JOB) if intent.params.get("bid_micros", 0) is None
    ]
    assert [(one.order_id, one.state) for one in reliable] == [(f"{JOB}-reliable-0", IntentState.DONE)]
    spot = next(one for one in deployed.market_log() if one["bid_micros"] is not None)
    assert (spot["end_cause"], spot["ended_at_s"]) == ("evicted", SPIKE_S)  # under the training, which lost nothing
    # The machine ends with its job; a moment passes until it is off.
    wait_until(lambda: not psutil.pid_exists(story.controller_pid), "the controller's end")


def scheduled(deployed: Deployed, deployment: str, **parameters: Any) -> str:
    """Give a deployment a schedule until it has begun a run; return that run."""
    begun = {run["id"] for run in deployed.runs(deployment)}
    path = f"/deployments/{deployed.deployment_id(deployment)}/schedules"
    # The server makes the runs of a schedule seconds after it was written: an interval of a day would miss the first.
    schedule = {"interval": 150, "anchor_date": datetime.now(UTC).isoformat(), "timezone": "UTC"}
    answer = deployed.send("POST", path, [{"schedule": schedule, "active": True, "parameters": parameters}])
    assert answer.is_success, answer.text

    def taken() -> list[str]:
        runs = [run for run in deployed.runs(deployment) if run["id"] not in begun]
        return [run["id"] for run in runs if run["state_type"] not in ("SCHEDULED", "PENDING")]

    wait_until(lambda: bool(taken()), f"the scheduled run of {deployment}", 300)
    deployed.send("DELETE", f"{path}/{answer.json()[0]['id']}")
    return taken()[0]


@pytest.mark.storm  # a schedule takes minutes; tests/tasks/test_scheduled_runs.py is quick
@pytest.mark.timeout(1200)
def test_the_schedule_of_prefect_yaml_begins_one_job_a_day_and_a_retry_attaches(story: Story) -> None:
    deployed, days = story.deployed, story.deployed.directory / "days"
    days.mkdir()
    for ahead in range(2):  # the run may be of tomorrow
        rows = "".join(f"{n % 2 + n / 1000},{n % 2}\n" for n in range(200))
        (days / f"{day(SystemClock().now_s() + ahead * DAY_S)}.csv").write_text(f"x,label\n{rows}")
    (example,) = examples()["train"]
    spec = example["parameters"]["spec"]
    spec["training"] |= {"data": str(days / "{date}.csv"), "clocks": 3}
    spec["transient"] = {"markets": [str(MARKET)], "max_vcpus": 0}
    run = scheduled(deployed, "train/train", spec=spec)
    due = str(deployed.run(run)["expected_start_time"])[:10]
    done = deployed.await_state(run, "COMPLETED", 120)
    assert done["parameters"]["spec"]["job_id"] == "nightly-{date}"
    assert deployed.store.jobs.job(f"nightly-{due}").state is JobState.FINISHED
    assert f"job:nightly-{due}" in done["tags"]
    bought = len(deployed.market_log())
    deployed.retry(run)
    wait_until(lambda: deployed.run(run)["run_count"] == 2, "the retry", 60)
    deployed.await_state(run, "COMPLETED", 60)
    assert len(deployed.market_log()) == bought
    assert [job.job_id for job in deployed.store.jobs.list_jobs() if job.job_id.startswith("nightly")] == [
        f"nightly-{due}"
    ]

    bare = scheduled(deployed, "sweep/sweep")
    state = deployed.await_state(bare, "FAILED", 60)["state"]
    assert "this run was given no parameters; a schedule has them under `parameters:`" in state["message"]
    wait_logged(deployed, bare, "Validation of flow parameters failed")
    assert "Traceback" not in deployed.logs(bare)


def stop(deployed: Deployed, job_id: str, *options: str) -> dict[str, Any]:
    """Run `proteus stop JOB --json -`; return its answer."""
    code = "import sys; from proteus_spot.flows.cli.main import main; sys.argv[0] = 'proteus'; sys.exit(main())"
    answer: dict[str, Any] = json.loads(deployed.python("-c", code, "stop", job_id, "--json", "-", *options))
    return answer


def living(deployed: Deployed, job_id: str) -> set[str]:
    """Return the instances of the job that the market's own record says are alive."""
    return {
        one["instance_id"]
        for one in deployed.market_log()
        if one["tags"]["proteus:job"] == job_id and one["ended_at_s"] is None
    }


@pytest.mark.storm  # half a minute of processors each; tests/tasks/supervision/test_cancelled_runs.py is quick
@pytest.mark.parametrize("moment", ["boot", "acquisition"])
def test_cancel_in_the_ui_stops_the_job_and_stop_names_every_machine_that_lives(story: Story, moment: str) -> None:
    deployed, job_id = story.deployed, f"cancelled-{moment}"
    (deployed.directory / "blobs" / paced.HURRY).unlink(missing_ok=True)  # the job must not end before it is cancelled
    if moment == "acquisition":
        deployed.market_fault(kind="delay", operation="launch", delay_s=3.0, times=1)
    run = deployed.start("train/train", {"spec": SPEC | {"job_id": job_id}})
    if moment == "acquisition":
        deployed.await_task(run, "secure reliable tier", 60)
        wait_until(lambda: bool(living(deployed, job_id)), "the machine whose purchase is not answered yet")
        assert deployed.at_task(run, "secure reliable tier")
    else:
        wait_until(lambda: bool(living(deployed, job_id)), "the machine, which boots", 60)
    deployed.post(f"/flow_runs/{run}/set_state", state={"type": "CANCELLING", "name": "Cancelling"}, force=True)
    deployed.await_state(run, "CANCELLED", 60)

    answer = stop(deployed, job_id)
    assert living(deployed, job_id) <= {machine["instance_id"] for machine in answer["stays"]}
    # A scheduled tick may have closed the job already: then the reason goes on with what became of its model.
    assert answer["why"].split(";")[0] == "cancelled in the Prefect UI"
    wait_logged(deployed, run, "Flow run was cancelled")
    assert not re.search("Crash detected!|Running\\(\\)|Traceback", deployed.logs(run)), deployed.logs(run)
    assert answer["state"] in ("stopping", "stopped")

    tick = deployed.start("allocation-tick/default", {"job_id": job_id})
    deployed.await_state(tick, "COMPLETED", 60)
    wait_until(lambda: deployed.store.jobs.job(job_id).state is JobState.STOPPED, "a tick that closes the job", 30)
    assert dict(deployed.store.jobs.job(job_id).result or {})["stopped"] == "cancelled in the Prefect UI"
    deployed.clock.jump_to(deployed.clock.now_s() + HOUR_S)
    wait_until(lambda: living(deployed, job_id) == set(), "the end of every machine")  # a moment after its time


def test_the_tick_runs_by_itself_every_two_minutes(story: Story) -> None:
    def done() -> list[dict[str, Any]]:
        runs = story.deployed.runs("allocation-tick/default")
        return [run for run in runs if run["auto_scheduled"] and run["state_type"] == "COMPLETED"]

    wait_until(lambda: bool(done()), "a scheduled tick", TICK_S + 20)
    run = done()[0]
    assert run["expected_start_time"][14:].startswith(tuple(f"{minute:02}:00" for minute in range(0, 60, 2)))
    assert not [one for one in story.deployed.runs("allocation-tick/default") if one["state_type"] == "FAILED"]


def test_the_run_that_died_in_silence_becomes_crashed(story: Story) -> None:
    state = story.deployed.await_state(story.runs["first"], "CRASHED", SILENCE_S + 30)["state"]
    assert "no heartbeat" in state["message"]
    # ... and nothing that lived was marked with it.
    marked = story.deployed.post("/flow_runs/filter", flow_runs={"state": {"type": {"any_": ["CRASHED"]}}})
    assert [run["id"] for run in marked] == [story.runs["first"]]
