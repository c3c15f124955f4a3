"""Read the file of a user's application or trial and refuse one that could not run on a node; no code is executed.

A file is one module (`kmeans.py`) or a wheel of pure Python. Checked is what would otherwise fail on a paid machine: a
syntax error, a missing class, method or function, a module name that hides another one.
"""

import ast
import hashlib
import importlib.metadata as installed
import io
import re
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import PurePosixPath
from types import MappingProxyType

import fsspec

from proteus_spot.infra.errors import InputError
from proteus_spot.psengine.apps.registry import BUILT_IN

MAX_BYTES = 64 * 2**20
#: Maximum unpacked size of a wheel, in bytes.
_MAX_UNPACKED = 4 * MAX_BYTES
_OURS = "proteus_spot"
#: Modules that held the public names before `proteus_spot` did.
_FORMER = re.compile(r"psengine(\..*)?|infra\.trials(\..*)?")
#: Methods of an application; one that has executors does without `run`.
_METHODS = ("tables", "initial", "prepare", "run", "evaluate")
_INSTEAD = MappingProxyType({"run": "executor"})
_COMPILED = (".so", ".pyd", ".dylib", ".dll")
_WHEEL_HINT = "make one by `pip wheel --no-deps .`"


class UnreadableCode(InputError):
    """The file does not exist or cannot be read."""


@dataclass(frozen=True, slots=True)
class CodeFile:
    """The file of an application. `sha256` is the digest of `data`, in hexadecimal."""

    name: str
    data: bytes
    sha256: str


def split_app(app: str) -> tuple[str, str]:
    """Return module and class of ``module:Class``; two empty strings for a built-in application.

    Raises
    ------
    InputError
        For any other name.
    """
    if app in BUILT_IN:
        return "", ""
    module, _, name = app.partition(":")
    if not name.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        raise InputError(f"app {app!r}: is not known; use one of {', '.join(sorted(BUILT_IN))}, or module:Class")
    return module, name


def check_no_library(app: str) -> None:
    """Refuse a class of a library that Proteus itself needs, as scikit-learn: none of those is an application.

    Raises
    ------
    InputError
        One line that names the library and what an application has.
    """
    top = split_app(app)[0].partition(".")[0]
    if not top or top == _OURS or top in sys.stdlib_module_names or find_spec(top) is None:
        return
    owners = {_normalize(name) for name in installed.packages_distributions().get(top, ())}
    if owners & (_needed() - {"proteus-spot"}):
        raise InputError(
            f"app {app!r}: is a class of the library {top} and no application; an application has {', '.join(_METHODS)}"
        )


def check_code_name(app: str, code: str, field: str = "app") -> str:
    """Return the name of the file that is to hold an application or a trial; it is not opened.

    Parameters
    ----------
    field : how the user calls what is looked for: ``app`` or ``trial``.

    Raises
    ------
    InputError
        If a built-in application is given code, or the file's ending is of neither form.
    """
    module, _ = split_app(app)
    if not module:
        raise InputError(
            f"code {code}: {field} {app} is built in and takes no code; leave it out, or name module:Class"
        )
    name = PurePosixPath(code.replace("\\", "/")).name
    if not name.endswith((".py", ".whl")):
        raise InputError(f"code {code}: is no .py file and no wheel; a package travels as a wheel: {_WHEEL_HINT}")
    return name


def read_code(app: str, code: str) -> CodeFile:
    """Return the checked file of an application.

    Parameters
    ----------
    app : ``module:Class``.
    code : path or fsspec URL of a .py file or of a wheel.

    Raises
    ------
    InputError
        One line that names the file and what is wrong with it; `UnreadableCode` if it cannot be read.
    """
    return _read_checked(app, code, "app")


def read_trial_code(trial: str, code: str) -> CodeFile:
    """Return the checked file of a trial's function.

    Parameters
    ----------
    trial : ``module:function``; the function takes the trial as its only argument.
    code : path or fsspec URL of a .py file or of a wheel.

    Raises
    ------
    InputError
        As `read_code`.
    """
    return _read_checked(trial, code, "trial")


def _read_checked(app: str, code: str, field: str) -> CodeFile:
    name = check_code_name(app, code, field)
    module, _, wanted = app.partition(":")
    data = _read(code)
    check = _check_class if field == "app" else _check_function
    if name.endswith(".py"):
        if name != f"{module}.py":
            what = "a module of a package travels in a wheel" if "." in module else f"name the file {module}.py"
            raise InputError(f"code {code}: {field} {app} is looked for in module {module}; {what}, or give another")
        _refuse_hidden(code, [module], "")
        check(data, code, app, wanted)
    else:
        check_source = partial(check, app=app, wanted=wanted)
        _check_wheel(data, code, name, module, check_source, f"{field} {app}")
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


def _check_wheel(
    data: bytes, code: str, name: str, module: str, check: Callable[[bytes, str], None], wanted: str
) -> None:
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
            source = next((p for p in (f"{path}.py", f"{path}/__init__.py") if p in sources), None)
            if source is None:
                tops = sorted({p.partition("/")[0].removesuffix(".py") for p in sources if p.endswith(".py")})
                raise InputError(f"code {code}: holds no module {module} of {wanted}; it holds {', '.join(tops)}")
            tops = sorted({p.partition("/")[0] for p in sources if ".dist-info/" not in p})
            _refuse_hidden(code, [top.removesuffix(".py") for top in tops], name.partition("-")[0])
            check(archive.read(sources[source]), f"{code}: {source}")
    except (zipfile.BadZipFile, zlib.error, RuntimeError, NotImplementedError, EOFError, OSError) as error:
        raise InputError(f"code {code}: is not a wheel that can be unpacked: {error}; {_WHEEL_HINT}") from None


def wheel_members(archive: zipfile.ZipFile) -> dict[str, str]:
    """Return the installation path of each file of a wheel by its name in the archive, without scripts and the like."""
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
    """Refuse modules that hide others; `distribution` is the name of the wheel itself."""
    for top in tops:
        if top == _OURS:
            raise InputError(f"code {code}: {top} is the package of Proteus; call the module otherwise")
        if top in sys.stdlib_module_names:
            raise InputError(f"code {code}: {top} is a module of Python itself; call the module otherwise")
    if not any(find_spec(top) for top in tops):
        return  # nothing of these names is installed; the list of all packages takes long to read
    owners = installed.packages_distributions()
    needed = _needed()
    for top in tops:
        others = {_normalize(name) for name in owners.get(top, ())} - {_normalize(distribution)}
        if needed & others:
            raise InputError(f"code {code}: {top} is a package that Proteus itself needs; call the module otherwise")


def _needed() -> frozenset[str]:
    """Return the distributions that this one requires, directly or not."""
    seen: set[str] = set()
    waiting = ["proteus-spot"]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        try:
            requirements = installed.requires(name) or []
        except installed.PackageNotFoundError:  # an extra that is not installed
            continue
        waiting += [_normalize(match[0]) for line in requirements if (match := re.match(r"[\w.-]+", line))]
    return frozenset(seen)


def _normalize(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


# -- what a module binds --------------------------------------------------------------------------------------------


def _check_class(source: bytes, where: str, app: str, wanted: str) -> None:
    """Refuse a module that lacks the class, or whose class lacks a method, as far as the source text shows."""
    bound = _names(source, where)
    if bound is None:
        return
    if wanted not in bound:
        classes = sorted(name for name, node in bound.items() if isinstance(node, ast.ClassDef))
        raise InputError(f"code {where}: has no {wanted} of app {app}; its classes are {', '.join(classes) or 'none'}")
    app_class = bound[wanted]
    if isinstance(app_class, ast.ClassDef) and not (app_class.bases or app_class.keywords or app_class.decorator_list):
        methods = dict(_bound(app_class.body))
        if missing := [name for name in _METHODS if name not in methods and _INSTEAD.get(name) not in methods]:
            raise InputError(f"code {where}: {wanted} has no method {missing[0]}(); an application needs it")


def _check_function(source: bytes, where: str, app: str, wanted: str) -> None:
    """Refuse a module that lacks the function, or whose function does not take a trial alone, as far as is shown."""
    bound = _names(source, where)
    if bound is None:
        return
    if wanted not in bound:
        functions = sorted(name for name, node in bound.items() if isinstance(node, ast.FunctionDef))
        raise InputError(
            f"code {where}: has no {wanted} of trial {app}; its functions are {', '.join(functions) or 'none'}"
        )
    match bound[wanted]:
        case ast.AsyncFunctionDef() | ast.ClassDef():
            raise InputError(f"code {where}: {wanted} is not a plain function; write def {wanted}(trial)")
        case ast.FunctionDef(args=args, decorator_list=[]):
            positional = [*args.posonlyargs, *args.args]
            needed = len(positional) - len(args.defaults) + sum(value is None for value in args.kw_defaults)
            if needed > 1 or not (positional or args.vararg):
                raise InputError(
                    f"code {where}: {wanted} must take the trial and nothing else; write def {wanted}(trial)"
                )


def _names(source: bytes, where: str) -> dict[str, ast.stmt] | None:
    """Return the statement that binds each name of a module; None where that is known only when it runs."""
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        line = "" if error.lineno is None else f"line {error.lineno}: "
        raise InputError(f"code {where}: {line}{error.msg}; fix it") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"code {where}: is not Python source: {error}") from None
    _refuse_former_imports(tree, where)
    bound = dict(_bound(tree.body))
    return None if "*" in bound or "__getattr__" in bound else bound


def _refuse_former_imports(tree: ast.Module, where: str) -> None:
    """Refuse the names of `proteus_spot` from a module that held them; a user's own module of that name has others."""
    public = set(import_module(_OURS).__all__)  # it names modules of all layers
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and _FORMER.fullmatch(node.module):
            names = ", ".join(alias.name for alias in node.names)
            if {alias.name for alias in node.names} <= public:
                raise InputError(
                    f"code {where}: line {node.lineno}: from {node.module} import {names}; "
                    f"write from {_OURS} import {names}"
                )


def _bound(body: list[ast.stmt]) -> Iterator[tuple[str, ast.stmt]]:
    """Yield (name, statement) for each name that statements bind; `*` stands for all names of another module."""
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
