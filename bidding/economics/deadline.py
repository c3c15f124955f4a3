"""The deadline of a job: when its slack is gone, machines on demand must finish it.

A rule without state, of one job with a number of clocks to train. The caller supplies the clocks that are left and the
measured speed.
"""

from dataclasses import dataclass
from typing import Final, Protocol

#: Share by which work may take longer than at a speed that was measured.
MEASURED_MARGIN: Final = 0.15


@dataclass(frozen=True, slots=True)
class TimeLeft:
    """What a job still has to do by its deadline.

    Attributes
    ----------
    deadline_s : int
        The deadline, seconds since the epoch.
    clocks : int
        Clocks that are not trained yet.
    clocks_per_vcpu_s : float
        Measured clocks in a second of one vCPU; 0 before any clock was measured.
    overhead_s : float
        Seconds without progress that lie ahead: until machines are decided on, have booted and work, and until the
        model is saved.
    margin : float
        Share by which the work may take longer than at that speed; 0 where the speed is known.
    """

    deadline_s: int
    clocks: int
    clocks_per_vcpu_s: float
    overhead_s: float
    margin: float = MEASURED_MARGIN


class DeadlineRule(Protocol):
    """Decides when machines on demand take over."""

    def slack_s(self, left: TimeLeft, now_s: int, vcpus: float) -> float:
        """Return the seconds that the job may still rely on spot machines; 0 or less: on-demand machines finish it.

        Parameters
        ----------
        vcpus : vCPUs that would finish it on demand.
        """
        ...


@dataclass(frozen=True, slots=True)
class SafetyNet:
    """Spot machines as long as on-demand ones could still finish in time, then on-demand ones to the end.

    The laxity (slack time) of a job is the time to its deadline less the time that its work takes at full speed: here
    on demand, with all vCPUs that the job may hold.

    Notes
    -----
    Source: the safety net of Wu et al., "Can't Be Late: Optimizing Spot Instance Savings under Deadlines" (NSDI 2024),
    section 4; laxity as in least-laxity-first scheduling (Mok 1983).
    Differs: the speed is measured, not known beforehand, hence the margin; spot machines that live on are kept.
    """

    def slack_s(self, left: TimeLeft, now_s: int, vcpus: float) -> float:
        """Return the laxity; infinite while no speed was measured, or with nothing left to train."""
        speed = left.clocks_per_vcpu_s * vcpus
        if left.clocks <= 0 or speed <= 0:
            return float("inf")
        return left.deadline_s - now_s - left.overhead_s - left.clocks / speed * (1.0 + left.margin)
