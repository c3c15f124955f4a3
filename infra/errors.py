"""Errors that a user reads. Each is one line that names the place and the mend."""

#: Characters of a line that a user can be expected to read.
_LONGEST = 1500


class ProteusError(Exception):
    """Something failed; the command ends with exit code 1."""

    exit_code = 1


class InputError(ProteusError):
    """What the user gave is wrong; nothing was bought or written. The command ends with exit code 2."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        if len(message) > _LONGEST:  # a field of a damaged file may hold anything
            message = f"{message[: _LONGEST - 300]} … {message[-200:]}"
        super().__init__(message)


class JobFailed(ProteusError):
    """A job ended without its result, for good. Any other error leaves the job as it is: run it again to attach."""
