"""What `make size` counts."""

import runpy
from pathlib import Path

size = runpy.run_path(str(Path(__file__).resolve().parents[2] / "tools" / "size.py"))["size"]

MODULE = '''"""A docstring,

of three lines."""

import os  # a comment

# another
def joined(
    *parts: str,
) -> str:
    """Say nothing."""
    found = os.path.join(
        *parts,
    )

    return found; pass
'''


def test_code_lines_and_statements_leave_out_what_says_and_does_nothing() -> None:
    assert size(MODULE) == (8, 5)


def test_dense_code_has_fewer_lines_and_as_many_statements() -> None:
    (lines, statements), (fewer, same) = size("if x:\n    y = 1\n"), size("if x: y = 1\n")
    assert lines > fewer
    assert statements == same == 2
