"""A user's application as a file: read, and refused where it could not run on a node. Nothing in it is executed.

A file is one module (`kmeans.py`) or a wheel of pure Python. What is looked for is what would else come to light on a
machine that is paid for: a syntax error, a class that is not there, a method that is missing, a name that hides another
module's.
"""

import ast
import hashlib
import importlib.metadata as installed
import io
import re
import sys
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

import fsspec

from infra.errors import InputError
from psengine.apps.registry import BUILT_IN

MAX_BYTES = 64 * 2**20
#: A wheel may hold more than its own size, within reason.
_MAX_UNPACKED = 4 * MAX_BYTES
_OURS = ("bidding", "flows", "infra", "psengine", "reports", "tasks")
_METHODS = ("tables", "initial", "prepare", "run", "evaluate")
_COMPILED = (".so", ".pyd", ".dylib", ".dll")
_WHEEL_HINT = "make one by `pip wheel --no-deps .`"


class UnreadableCode(InputError):
    """There is no such file, or nobody lets it be read."""


@dataclass(frozen=True, slots=True)
class CodeFile:
    """The file of an application. `sha256` is the digest of `data`, in hexadecimal."""

    name: str
    data: bytes
    sha256: str


def split_app(app: str) -> tuple[str, str]:
    """Return module and class of ``module:Class``; two empty texts for a built-in application.

    Raises
    ------
    InputError
        For a name that is neither.
    """
    if app in BUILT_IN:
        return "", ""
    module, _, name = app.partition(":")
    if not name.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        raise InputError(f"app {app!r}: is not known; use one of {', '.join(sorted(BUILT_IN))}, or module:Class")
    return module, name


def check_code_name(app: str, code: str) -> str:
    """Return the name of the file that is to hold an application; it is not opened.

    Raises
    ------
    InputError
        If a built-in application is given code, or the file's ending is of neither form.
    """
    module, _ = split_app(app)
    if not module:
        raise InputError(f"code {code}: app {app} is built in and takes no code; leave it out, or name module:Class")
    name = PurePosixPath(code.replace("\\", "/")).name
    if not name.endswith((".py", ".whl")):
        raise InputError(f"code {code}: is no .py file and no wheel; a package travels as a wheel: {_WHEEL_HINT}")
    return name


def read_code(app: str, code: str) -> CodeFile:
    """Return the file that holds an application, once it is fit to travel.

    Parameters
    ----------
    app : ``module:Class``.
    code : path or fsspec URL of a .py file or of a wheel.

    Raises
    ------
    InputError
        One line that names the file and what is wrong with it; `UnreadableCode` where it is not there.
    """
    module, wanted = split_app(app)
    name = check_code_name(app, code)
    data = _read(code)
    if name.endswith(".py"):
        if name != f"{module}.py":
            what = "a module of a package travels in a wheel" if "." in module else f"name the file {module}.py"
            raise InputError(f"code {code}: app {app} is looked for in module {module}; {what}, or give another app")
        _refuse_hidden(code, [module], "")
        _look_for(data, code, app, wanted)
    else:
        _check_wheel(data, code, name, app, module, wanted)
    return CodeFile(name, data, hashlib.sha256(data).hexdigest())


def _read(code: str) -> bytes:
    try:
        with fsspec.open(code, "rb") as file:
            data = bytes(file.read(MAX_BYTES + 1))
    except (OSError, ValueError, ImportError) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise UnreadableCode(f"code {code}: cannot be read: {reason}; check the path") from None
    if len(data) > MAX_BYTES:
        raise InputError(f"code {code}: has more than {MAX_BYTES // 2**20} MB; code travels to every node, data do not")
    return data


# -- a wheel --------------------------------------------------------------------------------------------------------


def _check_wheel(data: bytes, code: str, name: str, app: str, module: str, wanted: str) -> None:
    if not name.endswith("-none-any.whl"):
        raise InputError(f"code {code}: is not a wheel of pure Python (…-none-any.whl); {_WHEEL_HINT}")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
            if unpacked > _MAX_UNPACKED:
                raise InputError(f"code {code}: unpacks to {unpacked} bytes; at most {_MAX_UNPACKED} travel")
            if (bad := archive.testzip()) is not None:
                raise InputError(f"code {code}: its {bad} is damaged; make the wheel again")
            members = wheel_members(archive)
            if compiled := [path for path in members.values() if path.endswith(_COMPILED)]:
                raise InputError(f"code {code}: holds {compiled[0]}, which is not Python; install it on the nodes")
            sources = {path: member for member, path in members.items()}
            path = module.replace(".", "/")
            found = next((p for p in (f"{path}.py", f"{path}/__init__.py") if p in sources), None)
            if found is None:
                tops = sorted({p.partition("/")[0].removesuffix(".py") for p in sources if p.endswith(".py")})
                raise InputError(f"code {code}: holds no module {module} of app {app}; it holds {', '.join(tops)}")
            tops = sorted({p.partition("/")[0] for p in sources if ".dist-info/" not in p})
            _refuse_hidden(code, [top.removesuffix(".py") for top in tops], name.partition("-")[0])
            _look_for(archive.read(sources[found]), f"{code}: {found}", app, wanted)
    except (zipfile.BadZipFile, zlib.error, RuntimeError, NotImplementedError, EOFError, OSError) as error:
        raise InputError(f"code {code}: is no wheel that can be unpacked: {error}; {_WHEEL_HINT}") from None


def wheel_members(archive: zipfile.ZipFile) -> dict[str, str]:
    """Return where each file of a wheel is installed, by its name in the archive; scripts and the like are left out."""
    members = {}
    for entry in archive.infolist():
        top, _, rest = entry.filename.partition("/")
        if entry.is_dir():
            continue
        if not top.endswith(".data"):
            members[entry.filename] = entry.filename
        elif rest.startswith("purelib/"):
            members[entry.filename] = rest.removeprefix("purelib/")
    return members


# -- names ----------------------------------------------------------------------------------------------------------


def _refuse_hidden(code: str, tops: list[str], distribution: str) -> None:
    """Refuse modules that would be found in place of others; `distribution` is the name of the wheel itself."""
    for top in tops:
        if top in _OURS:
            raise InputError(f"code {code}: {top} is the name of a package of Proteus; call the module otherwise")
        if top in sys.stdlib_module_names:
            raise InputError(f"code {code}: {top} is a module of Python itself; call the module otherwise")
    owners = installed.packages_distributions()
    needed = _needed()
    for top in tops:
        others = {_plain(name) for name in owners.get(top, ())} - {_plain(distribution)}
        if needed & others:
            raise InputError(f"code {code}: {top} is a package that Proteus itself needs; call the module otherwise")


def _needed() -> frozenset[str]:
    """Return the distributions that ours asks for, directly or not."""
    seen: set[str] = set()
    waiting = ["proteus-spot"]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        try:
            asked = installed.requires(name) or []
        except installed.PackageNotFoundError:  # an extra that is not installed
            continue
        waiting += [_plain(found[0]) for line in asked if (found := re.match(r"[\w.-]+", line))]
    return frozenset(seen)


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


# -- what a module binds --------------------------------------------------------------------------------------------


def _look_for(source: bytes, where: str, app: str, wanted: str) -> None:
    """Refuse a module that lacks the class, or whose class lacks a method, as far as can be told from the text."""
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        line = "" if error.lineno is None else f"line {error.lineno}: "
        raise InputError(f"code {where}: {line}{error.msg}; mend it") from None
    except ValueError as error:
        raise InputError(f"code {where}: is no Python text: {error}") from None
    bound = dict(_bound(tree.body))
    if "*" in bound or "__getattr__" in bound:
        return  # what such a module has is known when it runs
    if wanted not in bound:
        there = sorted(name for name, node in bound.items() if isinstance(node, ast.ClassDef))
        raise InputError(f"code {where}: has no {wanted} of app {app}; its classes are {', '.join(there) or 'none'}")
    found = bound[wanted]
    if isinstance(found, ast.ClassDef) and not (found.bases or found.keywords or found.decorator_list):
        methods = dict(_bound(found.body))
        if missing := [name for name in _METHODS if name not in methods]:
            raise InputError(f"code {where}: {wanted} has no method {missing[0]}(); an application needs it")


def _bound(body: list[ast.stmt]) -> Iterator[tuple[str, ast.stmt]]:
    """Yield each name that statements bind with the statement; `*` for all names of another module."""
    for node in body:
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.name, node
            case ast.Import() | ast.ImportFrom():
                for alias in node.names:
                    yield (alias.asname or alias.name).partition(".")[0], node
            case ast.Assign() | ast.AnnAssign():
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for part in (part for target in targets for part in ast.walk(target)):
                    if isinstance(part, ast.Name):
                        yield part.id, node
            case ast.If() | ast.With() | ast.Try() | ast.For() | ast.While():
                for block in ("body", "orelse", "finalbody"):
                    yield from _bound(getattr(node, block, []))
                for handler in getattr(node, "handlers", []):
                    yield from _bound(handler.body)
            case _:
                continue
