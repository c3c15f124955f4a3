"""The version of this program."""

from functools import cache
from importlib.metadata import version

from proteus_spot.psengine.protocol.protocol_version import full_version


@cache
def program_version() -> str:
    """Return the version of the installed package and of its protocol, as in ``0.1.0 (protocol 2)``."""
    return full_version(version("proteus-spot"))
