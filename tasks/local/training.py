"""One training job on nodes of this machine: no market, no Prefect; what the engine does, and a script of what befalls it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from infra.applications import code_shipping as code
from infra.clock import SystemClock
from infra.datasets.prepare import prepare
from infra.errors import InputError, JobFailed, ProteusError
from infra.json_values import finite
from infra.local.node_events import ScriptedEvent, there_after
from infra.local.nodes import CONTROLLER, LocalNodes
from infra.nodes.controller_client import ControllerClient, ControllerUnreachable
from infra.open_close import ClosedAtEnd
from infra.settings import load_settings
from infra.storage.blobs import MANIFEST, Blobs, open_blobs
from infra.storage.checkpoints import find_checkpoint
from infra.storage.job_paths import JobPaths
from infra.urls import file_url
from psengine.config import JobConfig
from psengine.controller.state import ENDED
from psengine.telemetry.stalls import stalls_of
from psengine.tiers.stages import StageThresholds, stage_for
from tasks.job_spec import Training
from tasks.local.node_events import NodeEventScript
from tasks.local.run_files import RunFiles
from tasks.training.application_checks import check_sizes_here
from tasks.training.job_config import job_config

#: Real seconds between two looks: while a clock is waited for at which something is to happen, and otherwise.
_SOON_S, _LOOK_S = 0.02, 0.1
#: Real seconds that the first nodes have to join, and that a controller that lives may be silent.
_JOIN_S = 60.0
_SILENT_S = 30.0
#: Real seconds that an interrupted training has to keep its state; the part of it for what is under way to end.
_KEEP_S, _QUIET_S = 3.0, 1.0


@dataclass(frozen=True)
class LocalJob:
    """What is to be trained, and on which nodes: {name: tier} of those that are there at the beginning."""

    job_id: str
    training: Training
    tiers: Mapping[str, str]
    threads: int

    def __post_init__(self) -> None:
        JobPaths(self.job_id)  # refuses an id that cannot be

    @property
    def n_reliable(self) -> int:
        """How many of the nodes are reliable."""
        return sum(tier == "reliable" for tier in self.tiers.values())


def open_store(option: str, text: str) -> Blobs:
    """Return the blobs under a path or URL; `InputError` names the option where it is no such URL."""
    url = text if "://" in text else file_url(Path(text))
    try:
        return open_blobs(load_settings().model_copy(update={"blob_url": url}))
    except InputError as error:
        raise InputError(str(error).replace("PROTEUS_BLOB_URL", option)) from None


class LocalTraining(ClosedAtEnd):
    """A job that trains on this machine; a context manager that leaves no process behind.

    Parameters
    ----------
    directory : takes the nodes' logs.
    blobs : data, checkpoints, model and books; the job goes on from what it finds there.
    dashboard : whether the controller serves Dask's dashboard.
    """

    def __init__(
        self,
        directory: Path,
        blobs: Blobs,
        job: LocalJob,
        books: RunFiles,
        script: NodeEventScript,
        dashboard: bool = False,
    ) -> None:
        self._job, self._blobs, self._books, self._script = job, blobs, books, script
        self._nodes = LocalNodes(directory, job.job_id, blobs, dashboard)
        self._clock = SystemClock()
        self._client: ControllerClient | None = None
        self._config: JobConfig | None = None
        self._status: dict[str, Any] | None = None
        self._losses: list[Any] = []
        self._answered_s = 0.0
        self._ships = False
        #: the reliable nodes that are there; without any the model has no place to be
        self._lasting = {name for name, tier in job.tiers.items() if tier == "reliable"}

    @property
    def dashboard(self) -> str | None:
        """Where Dask's dashboard is served, once the controller has been met; None where it is not."""
        return self._nodes.dashboard

    def prepare(self) -> tuple[str, ...]:
        """Write code and data where the nodes find them, or find them there; nothing where one of them is no good.

        Returns how the data were read, where that may not be what their author expects; a line each.
        """
        job = self._job
        training = job.training
        code.check_code(self._blobs, job.job_id, training.app, training.code)
        data = prepare(
            self._blobs,
            job.job_id,
            training.data,
            training.partitions,
            training.seed,
            training.app,
            partial(check_sizes_here, training),
            training.standardizes,
        )
        self._ships = not code.shipped_code(self._blobs, job.job_id)
        digest = code.ship_code(self._blobs, job.job_id, training.app, training.code)
        self._config = job_config(job.job_id, training, data, job.n_reliable, code_sha256=digest)
        return data.notes

    def start(self) -> int:
        """Start the nodes and, when all have joined, the training; return the clock from which it goes on.

        Raises
        ------
        InputError
            If the application cannot be made of its parameters, or somebody else trains the job.
        ProteusError
            If a node does not come.
        """
        assert self._config is not None, "prepare first"
        client = self._nodes.meet()
        lasting = {name: tier for name, tier in self._job.tiers.items() if tier == "reliable"}
        there = lasting | there_after(
            self._job.tiers, self._script.applied_events
        )  # without those the job cannot go on
        for name, tier in there.items():
            self._nodes.start(name, tier, self._job.threads)
        until_s = self._clock.now_s() + _JOIN_S
        while {node["name"] for node in client.status()["nodes"] if not node["gone"]} != set(there):
            self._check_nodes()
            if self._clock.now_s() > until_s:
                raise ProteusError(f"not all nodes joined in {_JOIN_S:g} s; their logs say why")
            self._clock.wait_until(self._clock.now_s() + _LOOK_S)
        client.hold(self._script.hold_at)
        try:
            status = client.start(self._config.to_dict())
        except InputError:
            if self._ships:  # nothing was trained with it: the next try may bring other code
                place = JobPaths(self._job.job_id).code
                for name in (f"{place}/{MANIFEST}", *self._blobs.list(place)):
                    self._blobs.remove(name)
            raise
        self._client, self._status = client, status
        self._losses = list(client.status(0)["losses"])
        self._answered_s = self._clock.now_s()
        return int(status["checkpoint_clock"])

    def look(self) -> dict[str, Any]:
        """Return the status (see `psengine.controller.status.describe`), `losses` all of them.

        Raises
        ------
        ProteusError
            If the controller is gone.
        JobFailed
            If the job is.
        """
        assert self._client is not None, "start first"
        self._check_nodes()
        try:
            status = self._client.status(self._losses[-1][0] if self._losses else 0)
        except ControllerUnreachable:
            if self._clock.now_s() - self._answered_s > _SILENT_S:
                raise
            assert self._status is not None
            return self._status
        self._answered_s = self._clock.now_s()
        self._losses += status["losses"]
        self._status = status | {"losses": self._losses}
        if status["state"] == "failed":
            raise JobFailed(f"job {self._job.job_id}: {status['reason']}")
        return self._status

    @staticmethod
    def ended(status: Mapping[str, Any]) -> bool:
        """Return whether the training is over."""
        return status["state"] in ENDED

    def carry_out(self, status: Mapping[str, Any]) -> list[str]:
        """Do to the nodes what the script says of this moment; return lines for people."""
        assert self._client is not None, "start first"
        said = self._script.carry_out(self._nodes, self._client, status, self._clock.now_s(), self._job.threads)
        if said:
            self._books.record_events(self._script.records)
        return said

    def wait(self) -> None:
        """Wait until it is worth looking again."""
        pause_s, at, status = _LOOK_S, self._script.hold_at, self._status
        if at is not None and status is not None:
            soon_s = (at - status["clock"]) * (status["seconds_per_clock"] or 0.0) / 2
            pause_s = min(max(_SOON_S, soon_s), _LOOK_S)
        self._clock.wait_until(self._clock.now_s() + pause_s)

    def keep(self) -> int:
        """Have the state kept, within a few seconds, and end every process; return the clock that the job goes on from."""
        if self._client is not None:
            try:
                self._settle(self._client.address)
            except (ControllerUnreachable, InputError):  # then the newest checkpoint has to do
                self._client = None
        self._nodes.close()
        if self._config is None:
            return 0
        kept = find_checkpoint(self._blobs, self._config)
        return 0 if kept is None else kept.clock

    def finish(self, status: Mapping[str, Any]) -> dict[str, Any]:
        """End every process; return the figures of the job, which are kept with it."""
        assert self._client is not None, "start first"
        try:
            self._client.shutdown()
        except ControllerUnreachable:
            self._client = None  # it was too quick to answer, or too slow; its process is ended in any case
        self._nodes.close(told=True)
        told = ("name", "tier", "state", "gone", "threads")
        in_order = sorted(status["nodes"], key=lambda node: (node["tier"], len(node["name"]), node["name"]))
        nodes = [{name: node[name] for name in told} for node in in_order]
        figures = figures_of(self._job.job_id, self._blobs, status["result"], nodes, self._script.records)
        self._books.close(figures)
        return figures

    def _settle(self, address: str) -> None:
        """Let what runs come to its end, as far as it does so soon, and keep the state."""
        began_s = self._clock.now_s()
        client = ControllerClient(address, _KEEP_S)
        client.hold(0)
        while any(node["running"] for node in client.status()["nodes"]) and self._clock.now_s() - began_s < _QUIET_S:
            self._clock.wait_until(self._clock.now_s() + _SOON_S)
        left_s = _KEEP_S - (self._clock.now_s() - began_s)
        ControllerClient(address, max(left_s, _SOON_S)).checkpoint()

    def _check_nodes(self) -> None:
        """Raise where a process is gone that the job cannot do without; the others are the controller's to notice."""
        for name, tail in self._nodes.ended().items():
            self._lasting.discard(name)
            if self._client is None or name == CONTROLLER or not self._lasting:
                raise ProteusError(f"job {self._job.job_id}: the process {name} has ended: {tail}")

    def close(self) -> None:
        """End the processes."""
        self._nodes.close()


def figures_of(
    job_id: str, blobs: Blobs, result: Mapping[str, Any], nodes: Sequence[Any], events: Sequence[Any]
) -> dict[str, Any]:
    """Return the figures of a job that has ended, JSON-able: what is not finite is None.

    `seconds_by_clock` and `stage_by_clock` begin with clock 1; `stalls` are told in `psengine.telemetry.stalls`, `bytes_moved` in
    `psengine.telemetry.byte_counts`, `timeline` in `psengine.telemetry.timeline`.
    """
    told = ("clocks", "seconds", "kernel_seconds", "losses", "metrics", "metrics_by_clock")
    by_clock = ("seconds_by_clock", "stage_by_clock")
    counts = ("went_back", "repeated_micro_tasks", "lost_micro_tasks", "micro_tasks_done")
    figures: dict[str, Any] = finite(
        {
            "job": job_id,
            "state": "finished" if result.get("stopped") is None else "stopped",
            **{name: result.get(name) for name in (*told, *by_clock)},
            "stalls": [stall.record() for stall in stalls_of(result)],
            **{name: result.get(name) for name in ("bytes_moved", "bytes_not_read", "timeline")},
            "nodes": list(nodes),
            **{name: result.get(name) for name in counts},
            "events": list(events),
            "model": blobs.url_of(f"{JobPaths(job_id).model}/model.npz"),
        }
    )
    return figures


def hints(job: LocalJob, events: Sequence[ScriptedEvent]) -> list[str]:
    """Return a line for each option that leaves nodes without something to do, when all of them are there."""
    coming = {event.node for event in events if event.action == "join"} - set(job.tiers)
    transient = len(coming) + sum(tier == "transient" for tier in job.tiers.values())
    reliable = list(job.tiers.values()).count("reliable")
    of = StageThresholds(job.training.stage_2_above, job.training.stage_3_above)
    stage = job.training.stage or stage_for(transient, reliable, 1, of)
    lanes = job.threads * (transient if stage == 3 else transient + reliable)
    servers, lines = (transient + 1) // 2, []
    if job.training.partitions < lanes:
        lines.append(
            f"--partitions {job.training.partitions}: fewer than the {lanes} micro-tasks that the nodes can run at a time"
        )
    if job.training.shards < servers and stage != 1:
        lines.append(
            f"--shards {job.training.shards}: no more nodes can serve; half of the transient ones are {servers}"
        )
    return lines
