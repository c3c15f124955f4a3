"""The job of a backtest on a record of availability, and what becomes of it."""

from dataclasses import dataclass
from enum import IntEnum

from proteus_spot.bidding.market.model import HOUR_S


class JobFigure(IntEnum):
    """Columns of a job's row."""

    COST_USD = 0
    FINISHED_S = 1  # since the start; infinite: not until the record's end
    SPOT_S = 2  # machine-seconds paid for
    ON_DEMAND_S = 3
    LOST = 4  # machines that the market took
    STARTED = 5  # spot machines


@dataclass(frozen=True, slots=True)
class CapacityJob:
    """A job.

    Attributes
    ----------
    machines : most machines that help; a gang has all of them or none.
    hours : of work, on all machines.
    slack : deadline as a multiple of `hours`.
    restart_s : seconds that a new machine, and a gang that lost one, is paid for before it works.
    tasks : of equal length that machines share in whole rounds: with 8, five machines work as fast as four; 0: any
        number helps. A gang has as many as machines.
    repeated_s : seconds of work that all machines do again when some are lost; a gang has them in `restart_s`.
    """

    machines: int
    hours: float = 24.0
    slack: float = 1.5
    restart_s: float = 360.0
    tasks: int = 0
    repeated_s: float = 0.0

    def __post_init__(self) -> None:
        if self.machines < 1 or self.hours <= 0 or self.slack < 1 or min(self.restart_s, self.repeated_s) < 0:
            raise ValueError(f"{self}: want a machine, hours above 0, slack of at least 1 and no negative seconds")
        if self.tasks and self.tasks != self.machines:
            raise ValueError(f"{self}: want as many tasks as machines, or none")

    @property
    def work_s(self) -> float:
        """Machine-seconds of work."""
        return self.machines * self.hours * HOUR_S

    @property
    def deadline_s(self) -> float:
        """Seconds from the start to the deadline."""
        return self.hours * self.slack * HOUR_S

    def steps(self, step_s: int) -> int:
        """Return the steps that the deadline leaves."""
        return int(self.deadline_s // step_s)
