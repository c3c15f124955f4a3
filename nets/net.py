"""What a class inherits that is trained by DiLoCo."""

from __future__ import annotations

from proteus_spot.nets.application import NetApplication, WarmNetApplication
from proteus_spot.nets.settings import NetSettings


class Net(NetSettings):
    """A net that is trained by DiLoCo. A subclass for a library has `trainer`; a user's class inherits from that."""

    def engine_application(self) -> NetApplication:
        """Return the net as an application of the engine."""
        return WarmNetApplication(self) if self.calendar.warm_steps else NetApplication(self)
