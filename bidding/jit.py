"""Decorators of compiled functions, and the key by which numba's cache finds them outdated.

Numba caches a compiled function beside its file and checks that file alone: a change in a function that it calls would
be missed. So the version of all sources that it may call goes into its closure, which numba does check.
"""

import hashlib
from collections import deque
from collections.abc import Callable
from functools import cache, cached_property, update_wrapper
from pathlib import Path  # impure-ok: the digest of its own sources
from typing import Any, Generic, ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Function = TypeVar("Function", bound=Callable[..., Any])


class Compiled(Generic[Parameters, Result]):
    """A function that numba compiles, for callers in Python and for other compiled functions.

    Numba takes half a second to import, so that is left to the first use: most processes compile nothing.
    """

    def __init__(self, make: Callable[[], Callable[Parameters, Result]], options: dict[str, Any]) -> None:
        self._make = make
        self._options = options

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        """Compile the function for these types, if it was not, and call it."""
        result: Result = self.dispatcher(*args, **kwargs)
        return result

    @cached_property
    def dispatcher(self) -> Any:
        """Numba's object of the function."""
        from numba import njit
        from numba.core.compiler_lock import global_compiler_lock

        with global_compiler_lock:  # threads may come here at once
            _tell_numba()
            made = njit(**self._options)(self._make())
            _replace_unreadable(made._cache)
            return made


def _replace_unreadable(numba_cache: Any) -> None:
    """Have a cache that names modules of before a renaming emptied where it is read; numba would raise ImportError."""
    load = numba_cache.load_overload

    def load_overload(*about: Any) -> Any:
        try:
            return load(*about)
        except ImportError:
            numba_cache.flush()
            return None

    numba_cache.load_overload = load_overload


def compiled(function: Callable[Parameters, Result], *, cache: bool = True) -> Compiled[Parameters, Result]:
    """Compile a function that calls none of another file, and store it in numba's cache.

    With ``cache=False`` it may call others. So may an `entry`, which is stored.
    """
    made = Compiled(lambda: function, {"nogil": True, "cache": cache})
    update_wrapper(made, function)
    return made


def jitable(function: Function) -> Function:
    """Return the function unchanged, and let compiled functions call it, too; each compiles its own copy.

    So a formula is written once, for numbers, for arrays and for compiled loops. A call from Python compiles nothing.
    Compiled, the function divides as its caller does.
    """
    _JITABLE.append(function)
    return function


def inline_jit(function: Callable[Parameters, Result]) -> Compiled[Parameters, Result]:
    """Compile a function that only compiled functions call: without the wrappers for Python, in half of the time.

    Divisions are NumPy's, without Python's checks, which would cost too much in each tick.
    """
    bare = {"nogil": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True, "error_model": "numpy"}
    return Compiled(lambda: function, bare)


def entry(make: Callable[[int], Callable[Parameters, Result]]) -> Compiled[Parameters, Result]:
    """Compile the function that `make` returns, for callers in Python, and store it in numba's cache.

    Parameters
    ----------
    make : receives `source_digest()`. The function that it returns must use that number (for example return it), or it
        would not be in the function's closure.
    """
    return Compiled(lambda: make(source_digest()), {"nogil": True, "cache": True, "error_model": "numpy"})


#: Functions of `jitable` of which numba does not know yet.
_JITABLE: deque[Callable[..., Any]] = deque()  # impure-ok: numba keeps such a register itself; it is imported later


def _tell_numba() -> None:
    """Tell numba of what compiled functions may call."""
    from numba.extending import register_jitable

    _tell_numba_of_compiled()
    while _JITABLE:
        register_jitable(_JITABLE.popleft())


@cache
def _tell_numba_of_compiled() -> None:
    from numba import types
    from numba.extending import typeof_impl

    @typeof_impl.register(Compiled)
    def dispatcher_type(value: Compiled[..., Any], _: Any) -> Any:
        return types.Dispatcher(value.dispatcher)


_HERE = Path(__file__).parent
#: Sources that a compiled function may call. Of the policies only the rules and `deadline` are compiled.
_COMPILED = (
    *(_HERE / name for name in ("backtest", "billing", "economics", "forecast")),
    _HERE / "policies" / "rules.py",
    _HERE / "policies" / "deadline",
    _HERE / "jit.py",
)


def source_digest(*sources: Path) -> int:
    """Return a number that changes when a source file of a compiled function changes its name or content.

    Parameters
    ----------
    sources : files and folders; by default those of all compiled functions of the bidding core.
    """
    sha = hashlib.sha256()
    for source in sources or _COMPILED:
        for path in sorted(source.rglob("*.py")) if source.is_dir() else [source]:
            text = path.read_bytes()
            sha.update(f"{path.relative_to(source.parent).as_posix()} {len(text)}\n".encode())
            sha.update(text)
    return int.from_bytes(sha.digest()[:7])  # fits an int64
