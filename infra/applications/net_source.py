"""Whether an application is a net, and how many workers it has, from the text of its module; no code is executed."""

import ast
import io
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from proteus_spot.infra.applications.code_files import read_code, split_app
from proteus_spot.infra.errors import InputError

#: Names of the classes that a net inherits from, and the module that has them.
_BASES, _PACKAGE, _MODULE = ("TorchNet", "Net"), "proteus_spot", "proteus_spot.nets"
#: Workers of a net that says nothing of them.
WORKERS = 8


@dataclass(frozen=True, slots=True)
class NetSource:
    """A net as its text has it.

    Attributes
    ----------
    workers : how many logical workers it has; each has a partition.
    threads : threads of a worker.
    library : name of the library that its nodes need; empty: none.
    """

    workers: int
    library: str
    threads: int = 1


def net_source(app: str, code: str, params: Mapping[str, Any]) -> NetSource | None:
    """Return what the text of an application's module says of it; None if it is not a net.

    A class is a net if it, or a class of the same module that it inherits from, names `TorchNet` or `Net` of
    `proteus_spot.nets` as its base.

    Raises
    ------
    InputError
        One line: a file that cannot be read or used, or a number of workers that is not a whole number from 1.
    """
    module, wanted = split_app(app)
    source = _source(app, code, module) if module else None
    if source is None:
        return None
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError):
        return None  # the error is reported where the module is imported
    base, nodes = _base(wanted, {node.name: node for node in body if isinstance(node, ast.ClassDef)}, _imported(body))
    if not base:
        return None
    numbers = []
    for name, usual in (("workers", WORKERS), ("threads", 1)):
        number = params.get(name, next(iter(_assigned(name, nodes)), usual))
        if type(number) is not int or number < 1:
            raise InputError(
                f"app {app}: {name} is {number!r}: write a whole number from 1, in the class or by --param "
                f"{name}={usual}"
            )
        numbers.append(number)
    return NetSource(numbers[0], "torch" if base == "TorchNet" else "", numbers[1])


def _source(app: str, code: str, module: str) -> bytes | None:
    path = module.replace(".", "/")
    if not code:
        return _installed(path)
    file = read_code(app, code)
    if file.name.endswith(".py"):
        return file.data
    with zipfile.ZipFile(io.BytesIO(file.data)) as archive:
        names = {name.partition(".data/purelib/")[2] or name: name for name in archive.namelist()}
        found = next((names[each] for each in (f"{path}.py", f"{path}/__init__.py") if each in names), None)
        return None if found is None else archive.read(found)


def _installed(path: str) -> bytes | None:
    """Return the text of a module on this machine; its packages are not imported."""
    top, _, rest = path.partition("/")
    spec = PathFinder.find_spec(top)
    if spec is None:
        return None
    if not rest:
        files = [Path(spec.origin)] if spec.origin else []
    else:
        files = [
            Path(folder) / each
            for folder in spec.submodule_search_locations or ()
            for each in (f"{rest}.py", f"{rest}/__init__.py")
        ]
    return next((file.read_bytes() for file in files if file.suffix == ".py" and file.is_file()), None)


def _imported(body: list[ast.stmt]) -> dict[str, str]:
    """Return what names of a module stand for that come from the nets: one of `_BASES`, or `_MODULE` itself."""
    found: dict[str, str] = {}
    for node in body:
        if isinstance(node, ast.ImportFrom) and node.module in (_PACKAGE, _MODULE):
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found[alias.asname or alias.name] = _MODULE if whole == _MODULE else alias.name
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name == _MODULE:
                    found[alias.asname or alias.name] = _MODULE
    return found


def _base(
    name: str, classes: Mapping[str, ast.ClassDef], imported: Mapping[str, str]
) -> tuple[str, list[ast.ClassDef]]:
    """Return the base of a net, and the classes from the named one up to it; an empty name: it is not a net."""
    nodes: list[ast.ClassDef] = []
    while name in classes and classes[name] not in nodes:
        nodes.append(classes[name])
        bases = [ast.unparse(each) for each in classes[name].bases]
        for each in bases:
            owner, _, attribute = each.rpartition(".")
            direct = imported.get(each) if not owner else attribute if imported.get(owner) == _MODULE else None
            if direct in _BASES:
                return direct, nodes
        name = next((each for each in bases if each in classes), "")
    return "", []


def _assigned(name: str, nodes: list[ast.ClassDef]) -> Iterator[Any]:
    """Yield what classes assign to an attribute, from the lowest class; the text of what is not a literal."""
    for node in nodes:
        for each in node.body:
            targets = (
                each.targets
                if isinstance(each, ast.Assign)
                else [each.target]
                if isinstance(each, ast.AnnAssign)
                else []
            )
            value = each.value if isinstance(each, ast.Assign | ast.AnnAssign) else None
            for target in targets:
                yield from _values(name, target, value)


def _values(name: str, target: ast.expr, value: ast.expr | None) -> Iterator[Any]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for left, right in zip(target.elts, value.elts, strict=False):
            yield from _values(name, left, right)
    elif isinstance(target, ast.Name) and target.id == name and value is not None:
        try:
            yield ast.literal_eval(value)
        except ValueError:
            yield ast.unparse(value)
