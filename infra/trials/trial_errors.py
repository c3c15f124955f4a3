"""What is wrong with a trial, in one line for its author."""

from proteus_spot.infra.errors import ProteusError


class TrialError(ProteusError):
    """A training function did what a trial cannot do; the message names it and the fix."""
