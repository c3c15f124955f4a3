"""Digests of values that hold arrays, by which two calls of a user's code are compared."""

from __future__ import annotations

import hashlib
import pickle
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import numpy as np


def digest(value: Any) -> str:
    """Return a digest of all bits of a value: of arrays, numbers, texts, containers and objects with attributes."""
    hasher = hashlib.blake2b(digest_size=16)
    _feed(hasher.update, value, set())
    return hasher.hexdigest()


def _feed(take: Callable[[bytes | memoryview], None], value: Any, above: set[int]) -> None:
    if isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject:
        take(f"{value.dtype.str}{np.shape(value)}".encode())
        take(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
        return
    if value is None or isinstance(value, str | bytes | int | float | complex | slice | range):
        take(f"{type(value).__name__}{value!r};".encode())
        return
    if isinstance(value, type | FunctionType | BuiltinFunctionType | ModuleType):
        take(f"{value.__name__};".encode())
        return
    if id(value) in above:
        return
    above = above | {id(value)}
    take(f"{type(value).__name__}(".encode())
    children = _children(value)
    if children is None:
        take(_pickled(value))
    else:
        for child in children:
            _feed(take, child, above)
    take(b")")


def _children(value: Any) -> Iterable[Any] | None:
    if isinstance(value, Mapping):
        return [each for pair in value.items() for each in pair]
    if isinstance(value, list | tuple | deque):
        return value
    if isinstance(value, set | frozenset):  # its order depends on how it was made
        return sorted(map(digest, value))
    if isinstance(value, np.random.Generator):
        return [value.bit_generator.state]
    if isinstance(value, np.ndarray):
        return list(value.flat)
    if hasattr(value, "tocsr"):  # a matrix of SciPy notes what it has found out about itself
        return [array for _, array in sorted(vars(value).items()) if isinstance(array, np.ndarray)]
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    if hasattr(value, "__dict__") or slots:
        fields = {name: getattr(value, name) for name in slots if hasattr(value, name)} | getattr(value, "__dict__", {})
        return [each for pair in sorted(fields.items()) for each in pair]
    return None


def _pickled(value: Any) -> bytes:
    try:
        return pickle.dumps(value)
    except (pickle.PicklingError, TypeError, AttributeError):  # as of an open file: its state cannot be compared
        return b""
