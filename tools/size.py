"""Count code lines and statements by package: `python tools/size.py [FOLDER …]`.

A code line has a token that is not a comment, docstring or blank. A statement is a node of the syntax tree that is one,
docstrings left out: a commit that lowers lines but not statements has made code dense.
"""

import ast
import io
import subprocess
import sys
import tokenize
from collections import Counter
from pathlib import Path

_NO_CODE = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
#: They count apart: neither is installed.
_APART = ("tests", "benchmarks", "tools", "docs")


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def size(text: str) -> tuple[int, int]:
    """Return the code lines and the statements of a module."""
    statements = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.stmt)]
    docstrings = [node for node in statements if _is_docstring(node)]
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            lines |= set(range(token.start[0], token.end[0] + 1))
    for node in docstrings:
        lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines), len(statements) - len(docstrings)


def _package(path: Path) -> str:
    if path.parts[:2] == ("psengine", "apps"):
        return "psengine/apps"
    return path.parts[0] if len(path.parts) > 1 else "."


def main(folders: list[str]) -> int:
    """Print a line for each package; return the exit code."""
    listed = subprocess.run(["git", "ls-files", "*.py"], capture_output=True, text=True, check=True).stdout
    lines, statements, files = Counter[str](), Counter[str](), Counter[str]()
    for path in map(Path, listed.splitlines()):
        if not path.is_file() or (folders and not any(path.is_relative_to(folder) for folder in folders)):
            continue
        n_lines, n_statements = size(path.read_text(encoding="utf-8"))
        package = _package(path)
        lines[package] += n_lines
        statements[package] += n_statements
        files[package] += 1
    print(f"{'':16}{'files':>8}{'code lines':>12}{'statements':>12}")
    product = [name for name in sorted(lines) if name not in _APART]
    for name in [*product, *(name for name in _APART if name in lines)]:
        print(f"{name:16}{files[name]:8,}{lines[name]:12,}{statements[name]:12,}")
    totals = (sum(counted[name] for name in product) for counted in (files, lines, statements))
    print("{:16}{:8,}{:12,}{:12,}".format("product", *totals))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
