"""The supervisor of a trial on its machine: it runs the training in a process of its own, and uploads and reports.

It polls for an eviction notice and for the orders of the flow, asks the process to stop at either, uploads the newest
state (manifest last), and writes ``report.json``. The user's code can break its own process, and nothing else.
"""

import asyncio
import logging
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from proteus_spot.infra.clock import Clock, SystemClock
from proteus_spot.infra.storage.blobs import BlobError, BlobMissing, Blobs, DamagedSet
from proteus_spot.infra.storage.trial_paths import TrialPaths
from proteus_spot.infra.trials.child import TrialChild
from proteus_spot.infra.trials.deployment_state import DeploymentProgress, SavedState, ended_report
from proteus_spot.infra.trials.messages import Command, Message
from proteus_spot.infra.trials.process import Start
from proteus_spot.infra.trials.saved_states import remove_folder
from proteus_spot.infra.trials.shipping import TrialInputs, fetch_inputs
from proteus_spot.infra.trials.state_store import fetch_newest_state, upload_state
from proteus_spot.infra.trials.trial_documents import DocumentError, TrialOrders, TrialReport, TrialSetting, one_line
from proteus_spot.infra.trials.trial_errors import TrialError

logger = logging.getLogger(__name__)
_T = TypeVar("_T")

#: Market seconds between two reports while nothing happens, and the least real seconds between any two.
_QUIET_S, _REPORT_REAL_S = 300.0, 0.1
#: Real seconds between two looks at the process.
_LOOK_S = 0.05
#: Real seconds before a failed access to the store is repeated, and the most.
_RETRY_S, _MAX_RETRY_S = 0.5, 30.0
#: Real seconds in which a process must end after its last message.
_END_S = 10.0


@dataclass(frozen=True, slots=True)
class TrialJob:
    """What a supervisor is started for.

    Attributes
    ----------
    trial : number of the trial, from 0.
    deployment : order id of the deployment.
    threads : number of threads of numeric libraries; 0: their own choice.
    poll_s : real seconds between two looks for a notice and for orders.
    patience_s : real seconds without a step after which the process hangs, at least.
    notice_s : market seconds from an eviction notice to the eviction.
    report_s : market seconds between two reports of new steps.
    shows_traceback : whether the process prints the traceback of its failure.
    """

    sweep_id: str
    trial: int
    deployment: str
    threads: int = 0
    poll_s: float = 5.0
    patience_s: float = 3600.0
    notice_s: float = 120.0
    report_s: float = 15.0
    shows_traceback: bool = True


#: Returns the real seconds that are left to the eviction once there is a notice, else None.
PollNotice = Callable[[], Awaitable[float | None]]


class TrialSupervisor:
    """Runs one deployment of a trial to its end.

    Parameters
    ----------
    job : which one.
    blobs : the store.
    clock : market time.
    poll_notice : looks for an eviction notice; None: none will come.
    directory : for files of this deployment; None: a folder in the temporary directory.
    inputs : for code, packages and data, where deployments on one machine share them; None: in `directory`.
    """

    def __init__(
        self,
        job: TrialJob,
        blobs: Blobs,
        clock: Clock,
        poll_notice: PollNotice | None = None,
        directory: Path | None = None,
        inputs: Path | None = None,
    ) -> None:
        self._job = job
        self._blobs = blobs
        self._clock = clock
        self._real = SystemClock()
        self._poll_notice = poll_notice
        self._paths = TrialPaths(job.sweep_id, job.trial)
        self._directory = directory or Path(tempfile.gettempdir()) / f"proteus-trial-{job.deployment}"
        self._inputs = inputs or self._directory
        self._stop_why = ""
        self._is_noticed = False
        self._until_step = 0
        self._child: TrialChild | None = None
        self._upload: asyncio.Task[None] | None = None
        #: Folder of the state that is being uploaded; empty if none is.
        self._uploading = ""
        self._retry_at_s = 0.0
        self._retry_s = _RETRY_S
        self._reported_s = 0.0
        self._reported: TrialReport | None = None
        self._reporting = asyncio.Lock()

    def stop(self, why: str) -> None:
        """Ask the training to stop after its present step; the first reason counts."""
        if not self._stop_why:
            self._stop_why = why
            logger.info("the trial is asked to stop: %s", why)
        self._send_command()

    async def run(self) -> TrialReport:
        """Train, upload and report until the deployment ends; return its last report."""
        earlier = await self._persist(self._read_report)
        if earlier is not None and earlier.ended is not None:
            return earlier
        setting = await self._persist(self._read_setting)
        real_s = self._real.now_s()
        self._progress = DeploymentProgress(
            self._clock.scale, 60.0 * setting.checkpoint_minutes, self._job.patience_s, self._job.notice_s, real_s
        )
        if earlier is not None:
            self._progress.adopt(earlier)
        # The first report says that the machine works, before it fetches what may be large.
        await self._persist(lambda: self._write_report(self._progress.report(self._clock.now_s())))
        watching = [asyncio.create_task(self._follow_orders())]
        if self._poll_notice is not None:
            watching.append(asyncio.create_task(self._watch_notice(self._poll_notice)))
        try:
            how, why = await self._train(setting)
            await self._upload_last()
            last = ended_report(self._progress.report(self._clock.now_s()), how, why)
            await self._persist(lambda: self._write_report(last))
        finally:
            for task in watching:
                task.cancel()
            await asyncio.gather(*watching, return_exceptions=True)
        logger.info("trial %d %s at step %s: %s", self._job.trial, how, last.saved_step, why or "complete")
        shutil.rmtree(self._directory, ignore_errors=True)
        return last

    async def _train(self, setting: TrialSetting) -> tuple[str, str]:
        """Run the process to its end; return how and why it ended."""
        states = self._directory / "states"
        try:
            inputs = await self._persist(
                lambda: fetch_inputs(self._blobs, self._job.sweep_id, setting.trial, self._inputs)
            )
        except (TrialError, DamagedSet) as error:
            return "failed", one_line(error)
        start = await self._persist(lambda: self._restore(setting, inputs))
        self._progress.restored_step = start.restored_step
        if self._stop_why:
            return "paused", self._stop_why
        remove_folder(states)
        name = f"trial-{self._job.trial:02d}"
        child = TrialChild(start, states, inputs.packages, self._job.threads, self._take, name)
        child.start()
        self._child = child
        self._progress.moved_s = self._real.now_s()
        self._send_command()
        hung = ""
        try:
            while child.exit_code is None and not hung:
                await asyncio.sleep(_LOOK_S)
                now_s = self._real.now_s()
                self._upload_if_due(now_s)
                await self._report_if_due(now_s)
                if self._progress.last is not None:
                    if now_s >= self._progress.moved_s + _END_S:
                        break
                elif now_s >= self._progress.hangs_at_s:
                    hung = self._progress.hang_reason()
        finally:
            self._child = None  # it takes no command any more
            child.close()
        last = self._progress.last
        if child.garbled:
            logger.warning("%d lines of the process were no messages", child.garbled)
        if last is None:
            return "failed", hung or child.death()
        if last.kind == "failed":
            return "failed", last.why
        return last.how, (self._stop_why if last.how == "paused" and self._stop_why else "")

    # -- the process

    def _take(self, message: Message) -> None:
        replaced = self._progress.take(message, self._real.now_s())
        if replaced is not None and replaced.folder != self._uploading:
            remove_folder(self._directory / "states" / replaced.folder)

    def _send_command(self) -> None:
        if self._child is not None and self._until_step:
            self._child.command(Command(self._until_step, bool(self._stop_why)))

    def _restore(self, setting: TrialSetting, inputs: TrialInputs) -> Start:
        folder = self._directory / "fetched" / "state"
        began_s = self._real.now_s()
        state = fetch_newest_state(self._blobs, self._paths, folder)
        if state is not None:
            self._progress.restore_s = self._real.now_s() - began_s
            logger.info("trial %d goes on from its state of step %d", self._job.trial, state.step)
        orders = self._read_orders()
        self._until_step = min(orders.until_step, setting.max_trial_steps)
        return Start(
            setting,
            None if inputs.code is None else str(inputs.code),
            None if inputs.data is None else str(inputs.data),
            0 if state is None else state.step,
            None if state is None else str(folder),
            self._until_step,
            self._job.shows_traceback,
        )

    # -- uploads and reports

    def _upload_if_due(self, now_s: float) -> None:
        due_s = self._progress.upload_due_s()
        if due_s is None or (self._upload is not None and not self._upload.done()) or now_s < self._retry_at_s:
            return
        if self._stop_why or now_s >= due_s:
            assert self._progress.saved is not None
            self._upload = asyncio.create_task(self._upload_state(self._progress.saved))

    async def _upload_state(self, state: SavedState) -> None:
        folder = self._directory / "states" / state.folder
        began_s = self._real.now_s()
        self._uploading = state.folder
        try:
            await self._put_report()  # first: a deployment that goes on from the state reports later steps only
            await asyncio.to_thread(upload_state, self._blobs, self._paths, self._job.deployment, state.step, folder)
        except BlobError as error:
            logger.warning("the state of step %d is not uploaded and is tried again: %s", state.step, error)
            self._retry_at_s = self._real.now_s() + self._retry_s
            self._retry_s = min(2 * self._retry_s, _MAX_RETRY_S)
            return
        except OSError as error:  # the function has removed or changed what it saved
            logger.error("the state of step %d is lost: %s", state.step, error)
            if self._progress.saved == state:
                self._progress.saved = None
            return
        finally:
            self._uploading = ""
        now_s = self._real.now_s()
        self._retry_s = _RETRY_S
        had_note = bool(self._progress.note())
        self._progress.uploaded(state, max(0.0, now_s - began_s), now_s)
        if self._progress.saved != state:
            remove_folder(folder)
        if (note := self._progress.note()) and not had_note:
            logger.warning("%s", note)

    async def _upload_last(self) -> None:
        """Upload the newest state, however often that has to be tried."""
        if self._upload is not None:
            await self._upload
        while self._progress.needs_upload:
            assert self._progress.saved is not None
            await asyncio.sleep(max(0.0, self._retry_at_s - self._real.now_s()))
            await self._upload_state(self._progress.saved)

    async def _report_if_due(self, now_s: float) -> None:
        waited_s = now_s - self._reported_s
        if waited_s < max(self._job.report_s / self._clock.scale, _REPORT_REAL_S):
            return
        report = self._progress.report(self._clock.now_s())
        is_new = self._reported is None or replace(report, at_s=0.0) != replace(self._reported, at_s=0.0)
        if not is_new and waited_s < max(_QUIET_S / self._clock.scale, _REPORT_REAL_S):
            return
        self._reported_s = now_s
        try:
            await self._put_report()
        except BlobError as error:
            logger.warning("the report is not written and is tried again: %s", error)

    async def _put_report(self) -> None:
        async with self._reporting:  # an older report never replaces a newer one
            report = self._progress.report(self._clock.now_s())
            await asyncio.to_thread(self._write_report, report)
            self._reported = report

    # -- notices and orders

    async def _watch_notice(self, poll: PollNotice) -> None:
        while (left_s := await poll()) is None:
            await asyncio.sleep(self._job.poll_s)
        logger.info("eviction notice: %.1f s are left", left_s)
        self._is_noticed = True
        self.stop("eviction notice")

    async def _follow_orders(self) -> None:
        while True:
            try:
                orders = await asyncio.to_thread(self._read_orders)
            except (BlobError, DocumentError) as error:
                logger.warning("orders: %s", error)
            else:
                if orders.until_step != self._until_step:
                    self._until_step = orders.until_step
                    self._send_command()
                if orders.pause:
                    self.stop(orders.why or "pause")
            await asyncio.sleep(self._job.poll_s)

    @property
    def report(self) -> TrialReport | None:
        """The last report that was written by this process; None before the first."""
        return self._reported

    @property
    def is_noticed(self) -> bool:
        """Whether the market takes this machine soon."""
        return self._is_noticed

    # -- documents

    def _read_setting(self) -> TrialSetting:
        return TrialSetting.from_json(self._blobs.read_json(self._paths.setting))

    def _read_orders(self) -> TrialOrders:
        return TrialOrders.from_json(self._blobs.read_json(self._paths.orders(self._job.deployment)))

    def _read_report(self) -> TrialReport | None:
        try:
            return TrialReport.from_json(self._blobs.read_json(self._paths.report(self._job.deployment)))
        except BlobMissing:
            return None

    def _write_report(self, report: TrialReport) -> None:
        self._blobs.write_json(self._paths.report(self._job.deployment), report.to_json())

    async def _persist(self, touch: Callable[[], _T]) -> _T:
        """Return what `touch` returns, repeated while the store fails."""
        pause_s = _RETRY_S
        while True:
            try:
                return await asyncio.to_thread(touch)
            except (BlobMissing, DamagedSet):
                raise
            except BlobError as error:
                logger.warning("%s; again in %g s", error, pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _MAX_RETRY_S)
