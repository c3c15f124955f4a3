"""Progress of a simulated job, its stalls and losses: the counterpart of `simulate` for the live engine."""

from dataclasses import dataclass

from proteus_spot.bidding.backtest.parameters import PPM, JobParameters


@dataclass(slots=True)
class JobProgress:
    """The work of one job, which stands still after changes and losses, and falls back to its last checkpoint.

    Attributes
    ----------
    stalled_s : no progress before.
    work, saved : work done, and that of the last checkpoint, in millionths of a vCPU-second.
    checkpoint_s : the next checkpoint; None where none is due.
    restarts : whether the next machines begin from a checkpoint.
    """

    setting: JobParameters
    stalled_s: int
    work: int = 0
    saved: int = 0
    checkpoint_s: int | None = None
    restarts: bool = False

    def done_s(self, vcpus: int, now_s: int) -> int | None:
        """Return when `vcpus` that compute from `now_s` on will have done the work; None if `vcpus` is 0."""
        left = self.setting.work_vcpu_s * PPM - self.work
        rate = vcpus * self.setting.efficiency_ppm
        return max(now_s, self.stalled_s) + -(-left // rate) if rate else None

    def advance(self, vcpus: int, now_s: int, until_s: int) -> None:
        """Count the work of `vcpus` from `now_s` until `until_s`, and the checkpoint that is due then."""
        self.work += vcpus * self.setting.efficiency_ppm * max(until_s - max(now_s, self.stalled_s), 0)
        if until_s == self.checkpoint_s:
            self.saved = self.work
            self.checkpoint_s = until_s + self.setting.checkpoint_s

    def evicted(self, now_s: int, *, machines_left: bool) -> None:
        """Count an eviction: a stop, and with checkpoints a restart from the last one."""
        self._stop(now_s, self.setting.eviction_overhead_s)
        if self.setting.checkpoint_s:
            self.work, self.restarts = self.saved, not machines_left
            self._stop(now_s, self.setting.restart_s)
            self.checkpoint_s = self.stalled_s + self.setting.checkpoint_s if machines_left else None

    def bought(self, now_s: int, *, first: bool) -> None:
        """Count a purchase; `first` where nothing was held beside it."""
        if first and self.setting.checkpoint_s:
            if self.restarts:
                self._stop(now_s, self.setting.restart_s)
                self.restarts = False
            self.checkpoint_s = max(self.stalled_s, now_s) + self.setting.checkpoint_s
        self.resized(now_s)

    def resized(self, now_s: int) -> None:
        """Count a change of the footprint: a stop, in which a job with checkpoints saves its state."""
        self._stop(now_s, self.setting.resize_overhead_s)
        if self.setting.checkpoint_s and self.setting.resize_overhead_s:
            self.saved = self.work
            self.checkpoint_s = self.stalled_s + self.setting.checkpoint_s

    def _stop(self, now_s: int, seconds: int) -> None:
        self.stalled_s = max(self.stalled_s, now_s + seconds)
