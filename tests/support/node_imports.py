"""Imports that a node can come to, read from the sources: also those inside functions, which nothing may ever reach."""

import ast
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

OURS = ("proteus_spot",)


def _imports(module: str) -> Iterator[str]:
    """Yield the imports anywhere in a module, except for types only; submodules by their full names."""
    found = find_spec(module)
    assert found is not None, module
    assert found.origin is not None, module
    waiting: list[ast.AST] = [ast.parse(Path(found.origin).read_text())]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting.extend(node.orelse)
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            if node.module.partition(".")[0] in OURS:
                whole = (f"{node.module}.{alias.name}" for alias in node.names)
                yield from (name for name in whole if _is_module(name))
        waiting.extend(ast.iter_child_nodes(node))


def _is_module(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # a class of a module
        return False


def reached() -> tuple[list[str], list[str]]:
    """Return our modules that a node may load, and the third-party packages that these import."""
    engine = find_spec("proteus_spot.psengine")
    assert engine is not None
    assert engine.origin is not None
    top = Path(engine.origin).parent
    sources = (path.relative_to(top.parent.parent).with_suffix("") for path in top.rglob("*.py"))
    waiting = ["proteus_spot.infra.nodes.main", *(".".join(path.parts).removesuffix(".__init__") for path in sources)]
    ours: set[str] = set()
    others: set[str] = set()
    while waiting:
        module = waiting.pop()
        if module in ours:
            continue
        ours.add(module)
        for name in _imports(module):
            if (package := name.partition(".")[0]) in OURS:
                waiting.append(name)
            elif package not in sys.stdlib_module_names:
                others.add(package)
    return sorted(ours), sorted(others)
