"""Errors that are shown to the user, each in one line that names the place and the fix, without a secret of a URL."""

import re

from proteus_spot.infra.masking import masked, shortened

#: Characters of a line that a user can be expected to read.
_LONGEST = 1500
#: How begins what a download left in place of a file, and what that is.
_NOT_FETCHED = (
    (re.compile(rb"version https://git-lfs\.github\.com/"), "a Git LFS pointer, not the file; run git lfs pull"),
    (re.compile(rb"(\.\./)*(\.git/annex|/annex)/objects/"), "a git-annex pointer, not the file; run git annex get"),
    (
        re.compile(
            rb"(\xef\xbb\xbf)?\s*(<\?xml[^>]*>\s*)?(<!--.*?-->\s*)*<(!doctype\s+html|html|head|body)\b",
            re.IGNORECASE | re.DOTALL,
        ),
        "a web page, not the file; fetch the file again, signed in where its place asks for it",
    ),
    (
        re.compile(rb"(\xef\xbb\xbf)?\s*(<\?xml[^>]*>\s*)?<Error\b"),
        "the error of a store such as S3, not the file; check the address and your rights, and fetch the file again",
    ),
    (re.compile(rb"404: Not Found\s*\Z"), "the answer 'not found' of a server, not the file; fetch the file again"),
)


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


def check_fetched(source: object, data: bytes) -> None:
    """Refuse what a download left in place of a file: a pointer of Git LFS, a web page, an error of a store.

    Raises
    ------
    InputError
        One line that names what it is and how to get the file.
    """
    for begins, what in _NOT_FETCHED:
        if begins.match(data):
            raise InputError(f"{source}: is {what}")
