"""One training job on nodes of this machine, without market or Prefect, under a script of node events."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from proteus_spot.infra.applications import code_shipping as code
from proteus_spot.infra.applications.trained_models import model_url
from proteus_spot.infra.clock import SystemClock
from proteus_spot.infra.errors import InputError, JobFailed, ProteusError
from proteus_spot.infra.json_values import finite
from proteus_spot.infra.nodes.controller_client import ControllerClient, ControllerUnreachable
from proteus_spot.infra.open_close import ClosedAtEnd
from proteus_spot.infra.settings import load_settings
from proteus_spot.infra.storage.blobs import MANIFEST, Blobs, open_blobs
from proteus_spot.infra.storage.checkpoints import newest_clock
from proteus_spot.infra.storage.job_paths import JobPaths
from proteus_spot.infra.urls import file_url
from proteus_spot.psengine.config import JobConfig
from proteus_spot.psengine.controller.state import ENDED
from proteus_spot.psengine.telemetry.stalls import stalls_of
from proteus_spot.psengine.tiers.stages import StageThresholds, stage_for
from proteus_spot.studies.job_spec import Training
from proteus_spot.tasks.local_nodes.event_script import NodeEventScript, ScriptedEvent, there_after
from proteus_spot.tasks.local_nodes.local_nodes import CONTROLLER, LocalNodes
from proteus_spot.tasks.local_nodes.run_files import RunFiles
from proteus_spot.tasks.training.application_checks import check_sizes_here
from proteus_spot.tasks.training.data_checks import cut_data
from proteus_spot.tasks.training.job_config import job_config

#: Real seconds between two status calls: while the clock of an event is waited for, and otherwise.
_SOON_S, _LOOK_S = 0.02, 0.1
#: Real seconds for the first nodes to join, and that a living controller may be silent.
_JOIN_S = 60.0
_SILENT_S = 30.0
#: Real seconds for an interrupted training to keep its state; part of them for running tasks to end.
_KEEP_S, _QUIET_S = 3.0, 1.0


@dataclass(frozen=True)
class LocalJob:
    """The training and its nodes: {name: tier} of the nodes at the beginning."""

    job_id: str
    training: Training
    tiers: Mapping[str, str]
    threads: int

    def __post_init__(self) -> None:
        JobPaths(self.job_id)  # refuses an invalid id

    @property
    def nodes(self) -> str:
        """How many nodes of each tier it has, as they are given: ``r=1,t=3``."""
        return f"r={self.n_reliable},t={len(self.tiers) - self.n_reliable}"

    @property
    def n_reliable(self) -> int:
        """How many of the nodes are reliable."""
        return sum(tier == "reliable" for tier in self.tiers.values())


def open_store(option: str, text: str) -> Blobs:
    """Return the blobs under a path or URL; `InputError` names the option if the URL cannot be used."""
    url = text if "://" in text else file_url(Path(text))
    try:
        return open_blobs(load_settings().model_copy(update={"blob_url": url}))
    except InputError as error:
        raise InputError(str(error).replace("PROTEUS_BLOB_URL", option)) from None


class LocalTraining(ClosedAtEnd):
    """A job that trains on this machine; a context manager that leaves no process behind.

    Parameters
    ----------
    directory : for the nodes' logs.
    blobs : data, checkpoints, model and run files; the job resumes from what it finds there.
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
        #: Reliable nodes that are alive; the model needs at least one.
        self._lasting = {name for name, tier in job.tiers.items() if tier == "reliable"}

    @property
    def dashboard(self) -> str | None:
        """URL of Dask's dashboard, once the controller has answered; None if it is not served."""
        return self._nodes.dashboard

    def prepare(self) -> tuple[str, ...]:
        """Write code and data to the blob store, or find them there; nothing if one of them is refused.

        Returns a line for each way in which the data were read that their author may not expect.
        """
        job = self._job
        training = job.training
        code.check_code(self._blobs, job.job_id, training.app, training.code)
        data = cut_data(self._blobs, job.job_id, training, partial(check_sizes_here, training))
        self._ships = not code.shipped_code(self._blobs, job.job_id)
        digest = code.ship_code(self._blobs, job.job_id, training.app, training.code)
        self._config = job_config(job.job_id, training, data, job.n_reliable, code_sha256=digest)
        return data.notes

    def start(self, say: Callable[[str], None] = lambda line: None) -> int:
        """Start the nodes and, when all have joined, the training; return the clock from which it resumes.

        Parameters
        ----------
        say : called with a line on what is waited for, if it takes long.

        Raises
        ------
        InputError
            If the application does not accept its parameters, or another process trains the job.
        ProteusError
            If a node does not join.
        """
        assert self._config is not None, "prepare first"
        client = self._nodes.meet()
        lasting = {name: tier for name, tier in self._job.tiers.items() if tier == "reliable"}
        # Without the reliable nodes the job cannot resume.
        wanted = lasting | there_after(self._job.tiers, self._script.applied_events)
        for name, tier in wanted.items():
            self._nodes.start(name, tier, self._job.threads)
        until_s = self._clock.now_s() + _JOIN_S
        while {node["name"] for node in client.status()["nodes"] if not node["gone"]} != set(wanted):
            self._check_nodes()
            if self._clock.now_s() > until_s:
                raise ProteusError(f"not all nodes joined in {_JOIN_S:g} s; their logs say why")
            self._clock.wait_until(self._clock.now_s() + _LOOK_S)
        client.hold(self._script.hold_at)
        try:
            status = client.start(self._config.to_dict(), say)
        except InputError:
            if self._ships:  # nothing was trained with it: the next run may bring other code
                prefix = JobPaths(self._job.job_id).code
                for name in (f"{prefix}/{MANIFEST}", *self._blobs.list(prefix)):
                    self._blobs.remove(name)
            raise
        self._client, self._status = client, status
        self._losses = list(client.status(0)["losses"])
        self._answered_s = self._clock.now_s()
        return int(status["checkpoint_clock"])

    def look(self) -> dict[str, Any]:
        """Return the status (see `psengine.controller.status.describe`), with all `losses` so far.

        Raises
        ------
        ProteusError
            If the controller was lost.
        JobFailed
            If the job failed.
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

    @property
    def clock(self) -> int:
        """The last clock that was complete when the controller was last looked at."""
        return 0 if self._status is None else int(self._status["clock"])

    @staticmethod
    def ended(status: Mapping[str, Any]) -> bool:
        """Return whether the training is over."""
        return status["state"] in ENDED

    def carry_out(self, status: Mapping[str, Any]) -> list[str]:
        """Carry out the events that are due on the nodes; return lines for the terminal."""
        assert self._client is not None, "start first"
        lines = self._script.carry_out(self._nodes, self._client, status, self._clock.now_s(), self._job.threads)
        if lines:
            self._books.record_events(self._script.records)
        return lines

    def wait(self) -> None:
        """Wait until the status may have changed."""
        pause_s, at, status = _LOOK_S, self._script.hold_at, self._status
        if at is not None and status is not None:
            soon_s = (at - status["clock"]) * (status["seconds_per_clock"] or 0.0) / 2
            pause_s = min(max(_SOON_S, soon_s), _LOOK_S)
        self._clock.wait_until(self._clock.now_s() + pause_s)

    def keep(self) -> int:
        """Write a checkpoint within a few seconds and end every process; return the clock to resume from."""
        if self._client is not None:
            try:
                self._settle(self._client.address)
            except (ControllerUnreachable, InputError):  # the newest checkpoint is used then
                self._client = None
        self._nodes.close()
        if self._config is None:
            return 0
        return newest_clock(self._blobs, self._job.job_id)

    def finish(self, status: Mapping[str, Any]) -> dict[str, Any]:
        """End every process; return the figures of the job, which are stored with it."""
        assert self._client is not None, "start first"
        try:
            self._client.shutdown()
        except ControllerUnreachable:
            self._client = None  # it was too quick to answer, or too slow; its process is ended in any case
        self._nodes.close(told=True)
        fields = ("name", "tier", "state", "gone", "threads")
        in_order = sorted(status["nodes"], key=lambda node: (node["tier"], len(node["name"]), node["name"]))
        nodes = [{name: node[name] for name in fields} for node in in_order]
        figures = figures_of(self._job.job_id, self._blobs, status["result"], nodes, self._script.records)
        self._books.close(figures)
        return figures

    def _settle(self, address: str) -> None:
        """Wait shortly for running tasks to end, and write a checkpoint."""
        began_s = self._clock.now_s()
        client = ControllerClient(address, _KEEP_S)
        client.hold(0)
        while any(node["running"] for node in client.status()["nodes"]) and self._clock.now_s() - began_s < _QUIET_S:
            self._clock.wait_until(self._clock.now_s() + _SOON_S)
        left_s = _KEEP_S - (self._clock.now_s() - began_s)
        ControllerClient(address, max(left_s, _SOON_S)).checkpoint()

    def _check_nodes(self) -> None:
        """Raise if a process that the job needs has ended; the controller notices the others."""
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
    """Return the figures of a job that has ended, JSON-able: values that are not finite are None.

    `seconds_by_clock` and `stage_by_clock` begin with clock 1, or after `clocks_left_out`; `stalls` are described in
    `psengine.telemetry.stalls`, `bytes_moved` in `psengine.telemetry.byte_counts`, `timeline` in
    `psengine.telemetry.event_log`. `memory_by_clock`: [clock, bytes of tables, of states of partitions, of input,
    number of nodes] of common clocks. `driver_figures`: those that also stand beside the job's own; `remarks`: those of
    the driver. `releases`: of each drained node the seconds from the notice or the request.
    """
    totals = ("clocks", "passes", "seconds", "kernel_seconds", "losses", "metrics", "metrics_by_clock")
    by_clock = ("seconds_by_clock", "stage_by_clock")
    carried = ("releases", "bytes_moved", "bytes_not_read", "timeline", "memory_by_clock")
    counts = ("went_back", "repeated_micro_tasks", "lost_micro_tasks", "micro_tasks_done")
    figures: dict[str, Any] = finite(
        {
            **result.get("driver_figures", {}),  # first: a driver's name for a figure replaces none of the job's
            **{name: result[name] for name in ("driver_figures", "remarks") if name in result},
            "job": job_id,
            "state": "finished" if result.get("stopped") is None else "stopped",
            **({"converged": result["converged"]} if "converged" in result else {}),
            **{name: result.get(name) for name in (*totals, *by_clock)},
            **{name: result[name] for name in ("clocks_left_out", "seconds_left_out") if name in result},
            "stalls": [stall.record() for stall in stalls_of(result)],
            **{name: result.get(name) for name in carried},
            "nodes": list(nodes),
            **{name: result.get(name) for name in counts},
            "events": list(events),
            "model": model_url(blobs, job_id),
        }
    )
    return figures


def hints(job: LocalJob, events: Sequence[ScriptedEvent]) -> list[str]:
    """Return a line for each option that leaves nodes idle when all of them have joined."""
    coming = {event.node for event in events if event.action == "join"} - set(job.tiers)
    transient = len(coming) + sum(tier == "transient" for tier in job.tiers.values())
    reliable = list(job.tiers.values()).count("reliable")
    thresholds = StageThresholds(job.training.stage_2_above, job.training.stage_3_above)
    stage = job.training.stage or stage_for(transient, reliable, 1, thresholds)
    lanes = job.threads * (transient if stage == 3 else transient + reliable)
    servers, lines = (transient + 1) // 2, []
    if job.training.partitions < lanes:
        lines.append(
            f"--partitions {job.training.partitions}: fewer than the {lanes} tasks that the nodes can run at a time"
        )
    if job.training.shards < servers and stage != 1:
        lines.append(
            f"--shards {job.training.shards}: no more nodes can serve; half of the transient ones are {servers}"
        )
    return lines
