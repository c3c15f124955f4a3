"""What a class inherits that is trained by DiLoCo."""

from __future__ import annotations

from proteus_spot.nets.application import NetApplication
from proteus_spot.nets.settings import NetSettings


class Net(NetSettings):
    """A net that is trained by DiLoCo. A subclass for a library has `trainer`; a user's class inherits from that."""

    def engine_application(self) -> NetApplication:
        """Return the net as an application of the engine."""
        return NetApplication(self)
