"""The state of a supervisor's deployment, and what follows from it: when to upload, and when the process hangs."""

from dataclasses import dataclass, field, replace

from proteus_spot.infra.trials.messages import Message, StepDurations
from proteus_spot.infra.trials.trial_documents import TrialReport

#: Maximum share of the training that uploads may take.
_UPLOADING = 0.1
#: A process hangs when its step takes this many times as long as the longest so far, and longer than the patience.
_LONGER = 10.0


@dataclass(frozen=True, slots=True)
class SavedState:
    """A state on the machine: the step that it was saved after, its folder, and its size in bytes."""

    step: int
    folder: str
    size: int


@dataclass(slots=True)
class DeploymentProgress:
    """The progress of a deployment.

    Parameters
    ----------
    scale : market seconds per real second.
    checkpoint_s : market seconds between uploads.
    patience_s : real seconds without a step after which the process hangs, at least.
    notice_s : market seconds from an eviction notice to the eviction.
    began_s : real time at which the process was started.
    values : the metric by step, at first of an earlier process of the same deployment.
    """

    scale: float
    checkpoint_s: float
    patience_s: float
    notice_s: float
    began_s: float
    values: dict[int, float | None] = field(default_factory=dict)
    repeated: int = 0
    #: The newest state on the machine, and the step of the newest that was uploaded.
    saved: SavedState | None = None
    uploaded_step: int | None = None
    uploaded_at_s: float = 0.0
    upload_s: float | None = None
    state_bytes: int | None = None
    restore_s: float | None = None
    restored_step: int = 0
    save_s: float = 0.0
    times: StepDurations = field(default_factory=StepDurations)
    step: int = 0
    #: Real time of the last message with something new.
    moved_s: float = 0.0
    #: The last word of the process.
    last: Message | None = None

    def __post_init__(self) -> None:
        self.moved_s = self.uploaded_at_s = self.began_s

    def take(self, message: Message, now_s: float) -> SavedState | None:
        """Take a message; return a state on the machine that a newer one has replaced."""
        self.moved_s = now_s
        self.times = message.times if message.times.count >= self.times.count else self.times
        if message.kind in ("ended", "failed"):
            self.last = self.last or message
            return None
        self.step = message.step
        if message.kind == "report":
            self.repeated += message.step in self.values
            self.values[message.step] = message.value
        if message.kind != "saved":
            return None
        replaced, self.saved = self.saved, SavedState(message.step, message.folder, message.size)
        self.save_s += message.seconds
        return replaced

    def uploaded(self, state: SavedState, seconds: float, now_s: float) -> None:
        """Take note of an upload that took real `seconds`."""
        self.uploaded_step = state.step
        self.uploaded_at_s = now_s
        self.upload_s = seconds
        self.state_bytes = state.size

    @property
    def needs_upload(self) -> bool:
        """Whether the newest state on the machine is not uploaded."""
        return self.saved is not None and self.saved.step != self.uploaded_step

    @property
    def upload_every_s(self) -> float:
        """Real seconds from one upload to the next: longer where uploads would take too much of the time."""
        return max(self.checkpoint_s / self.scale, (self.upload_s or 0.0) / _UPLOADING)

    def upload_due_s(self) -> float | None:
        """Return the real time at which the newest state is to be uploaded; None if it is uploaded."""
        return self.uploaded_at_s + self.upload_every_s if self.needs_upload else None

    @property
    def hangs_at_s(self) -> float:
        """Real time at which the process hangs unless it says something before."""
        return self.moved_s + max(self.patience_s, _LONGER * self.times.longest_s)

    def hang_reason(self) -> str:
        """Return why the process is taken to hang."""
        minutes = (self.hangs_at_s - self.moved_s) / 60
        longest = f"the longest took {self.times.longest_s:.3g} s" if self.times.count else "none was completed"
        begin = f"step {self.step} has" if self.step else "the function has"
        return (
            f"{begin} not ended or reported for {minutes:.3g} minutes ({longest}); "
            "raise PROTEUS_PROGRESS_MINUTES if steps take that long"
        )

    def note(self) -> str:
        """Return what the author should know of the checkpoints; empty if nothing."""
        if self.upload_s is None or self.state_bytes is None or self.upload_s * self.scale <= self.notice_s:
            return ""
        upload_s = self.upload_s * self.scale
        every_minutes = self.upload_every_s * self.scale / 60
        fits = self.state_bytes * self.notice_s / upload_s
        return (
            f"a state of {self.state_bytes / 1e6:.3g} MB takes {upload_s:.3g} s to upload, longer than the notice of "
            f"an eviction ({self.notice_s:g} s): it is uploaded every {every_minutes:.3g} minutes, and later steps "
            f"are trained again; at this speed {fits / 1e6:.3g} MB fit"
        )

    def report(self, at_s: float) -> TrialReport:
        """Return the report at market time `at_s`."""
        mean_s = self.times.mean_s
        return TrialReport(
            values=tuple(sorted(self.values.items())),
            saved_step=self.uploaded_step,
            restored_step=self.restored_step,
            step_s=None if mean_s is None else mean_s * self.scale,
            step_cov=self.times.cov,
            repeated_steps=self.repeated,
            state_bytes=self.state_bytes,
            upload_s=None if self.upload_s is None else self.upload_s * self.scale,
            restore_s=None if self.restore_s is None else self.restore_s * self.scale,
            save_s=self.save_s * self.scale,
            note=self.note(),
            at_s=at_s,
            done_step=self.last.step if self.last is not None and self.last.kind == "ended" else None,
        )

    def adopt(self, earlier: TrialReport) -> None:
        """Take over what an earlier process of the same deployment reported."""
        self.values = dict(earlier.values)
        self.repeated = earlier.repeated_steps
        self.uploaded_step = earlier.saved_step
        self.state_bytes = earlier.state_bytes


def ended_report(report: TrialReport, how: str, why: str) -> TrialReport:
    """Return the last report of a deployment."""
    return replace(report, ended=how, why=why)  # type: ignore[arg-type]
