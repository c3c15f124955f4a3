"""Errors that are shown to the user, each in one line that names the place and the mend, without a secret of a URL."""

from infra.masking import masked, shortened

#: Characters of a line that a user can be expected to read.
_LONGEST = 1500


class ProteusError(Exception):
    """Something failed; the command ends with exit code 1."""

    exit_code = 1

    def __init__(self, message: str = "") -> None:
        super().__init__(masked(shortened(message)))


class InputError(ProteusError):
    """The user's input is wrong; nothing was bought or written. The command ends with exit code 2."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(shortened(message, _LONGEST - 100))  # a field of a damaged file may hold anything


class TickStopped(ProteusError):
    """What a tick observes cannot be acted on, and a person should look; nothing was bought or booked."""


class JobFailed(ProteusError):
    """A job ended permanently without its result. After any other error, run the job again to attach to it."""
