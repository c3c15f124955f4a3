"""Writes that are made only where nobody has written meanwhile: to a file, and to an object of S3."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

#: Errors of S3 for a conditional write that another one came before.
_OVERTAKEN = ("PreconditionFailed", "ConditionalRequestConflict", "NoSuchKey")


@contextmanager
def locked_file(path: str) -> Iterator[None]:
    """Hold the lock of a file, which is another file next to it: the file itself is replaced by each write."""
    folder, base = os.path.split(path)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, f".{base}.lock.new"), "wb") as file:  # blobs of this ending are never listed
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def swap_object(filesystem: Any, path: str, old: bytes | None, new: bytes) -> bool:
    """Write an object of S3 if its content is still `old` (None: there is none); return whether it was.

    Parameters
    ----------
    filesystem : of s3fs.
    """
    bucket, key, _ = filesystem.split_path(path)
    condition = {"IfNoneMatch": "*"}
    if old is not None:
        try:
            condition = {"IfMatch": filesystem.info(path, refresh=True)["ETag"]}
            found = filesystem.cat_file(path)  # a newer one than that of the tag is not overwritten
        except FileNotFoundError:
            return False
        if found != old:
            return False
    try:
        filesystem.call_s3("put_object", Bucket=bucket, Key=key, Body=new, **condition)
    except OSError as error:
        response = getattr(error.__cause__, "response", {})
        if response.get("Error", {}).get("Code") in _OVERTAKEN:
            return False
        raise
    return True
