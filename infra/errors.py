"""Errors that a user reads. Each is one line that names the place and the mend."""


class ProteusError(Exception):
    """Something failed; the command ends with exit code 1."""

    exit_code = 1


class InputError(ProteusError):
    """What the user gave is wrong; nothing was bought or written. The command ends with exit code 2."""

    exit_code = 2


class JobFailed(ProteusError):
    """A job ended without its result, for good. Any other error leaves the job as it is: run it again to attach."""
