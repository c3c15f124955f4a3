"""Secrets in URLs, masked in any text that is shown: an error, a log, a report.

Masked are the password of ``scheme://user:password@host``, all of a user part of http, https and s3, and the parameters
after ``?``, ``&``, ``;`` or ``#`` whose name speaks of a secret: ``password=``, ``X-Amz-Signature=``, ``sig=``.
"""

import logging
import re
from functools import cache
from typing import Any
from urllib.parse import unquote_plus

MASK = "***"

#: A URL up to the first character that ends one in a text. Only its start matters: parameters are found by themselves.
#: Its scheme is limited, or a long word would be looked through from each of its letters.
_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{0,40})://(?P<rest>[^\s'\"<>]*)")
#: Schemes whose user part is a secret even without a password: tokens, and the id of a key.
_SECRET_USERS = frozenset({"http", "https", "s3", "s3a", "gs", "gcs", "abfs", "az", "ftp", "sftp", "ssh"})
#: What SQLAlchemy takes for a password, also one with a slash in it; digits and a slash are a port and a path.
_LATE_PASSWORD = re.compile(r"(?P<user>[^:/?#@]*):(?!\d+/)(?P<password>[^@?]*)@")
_PARAMETER = re.compile(r"(?P<before>[?&;#])(?P<name>[^\s'\"<>=&;#?]+)=(?P<value>[^\s'\"<>&;#]*)")
#: What ends a sentence, or a part of it, and no value.
_AFTER = ":.,)"
#: Maximum characters of a message, and of a message or a traceback in a log: a user's exception may be of any length.
MOST_CHARACTERS, MOST_LOGGED = 4000, 20_000
_SECRET_NAME = re.compile(r"pass|pwd|secret|token|sig|cred|key|auth|session|x-amz|x-goog", re.IGNORECASE)
_TRACEBACKS = logging.Formatter()


def masked(text: str) -> str:
    """Return `text` with `MASK` in the place of every secret in its URLs; a masked text stays as it is."""
    return _PARAMETER.sub(_mask_parameter, _URL.sub(_mask_user, text))


def shortened(text: str, most: int = MOST_CHARACTERS) -> str:
    """Return `text` without its middle if it has more than `most` characters: what was written first, and last."""
    if len(text) <= most:
        return text
    half = most // 2
    _, _, end = text[-half:].partition(" ")  # from the next word on: a part of a secret would not be known for one
    return f"{text[:half]} … ({len(text) - half - len(end)} characters) … {end}"


@cache
def mask_logs() -> None:
    """Mask what every logger of this process writes from now on, also in the tracebacks of exceptions; shorten it."""
    make = logging.getLogRecordFactory()

    def make_masked(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = make(*args, **kwargs)
        message = record.getMessage()
        if (hidden := masked(shortened(message, MOST_LOGGED))) != message:
            record.msg, record.args = hidden, ()
        if record.exc_info:
            text = _TRACEBACKS.formatException(record.exc_info)
            if (hidden := masked(shortened(text, MOST_LOGGED))) != text:
                record.exc_text = hidden  # a formatter takes it as it is
        return record

    logging.setLogRecordFactory(make_masked)


def _mask_user(match: re.Match[str]) -> str:
    scheme, rest = match["scheme"], match["rest"]
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    user, at, host = authority.rpartition("@")
    if at:
        name, colon, _ = user.partition(":")
        hidden = MASK if scheme.lower() in _SECRET_USERS else f"{name}:{MASK}" if colon else user
        return f"{scheme}://{hidden}@{host}{rest[len(authority) :]}"
    if late := _LATE_PASSWORD.match(rest):
        return f"{scheme}://{late['user']}:{MASK}@{rest[late.end() :]}"
    return match[0]


def _mask_parameter(match: re.Match[str]) -> str:
    value = match["value"].rstrip(_AFTER)
    if not value or not _SECRET_NAME.search(unquote_plus(match["name"])):
        return match[0]
    return f"{match['before']}{match['name']}={MASK}{match['value'][len(value) :]}"
