"""What users import: `from proteus_spot import …`."""

import ast
import subprocess
import sys
from pathlib import Path

import proteus_spot


def test_each_public_name_is_there_and_the_types_of_mypy_are_the_same() -> None:
    assert all(getattr(proteus_spot, name) is not None for name in proteus_spot.__all__)
    (typed,) = [node for node in ast.parse(Path(proteus_spot.__file__).read_text()).body if isinstance(node, ast.If)]
    names = [alias.name for node in typed.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert sorted(names) == sorted(proteus_spot.__all__) == sorted(set(proteus_spot.__all__))
    assert set(proteus_spot.__all__) <= set(dir(proteus_spot))
    assert not hasattr(proteus_spot, "no_such_name")


def test_importing_it_loads_nothing_else() -> None:
    program = "import sys, proteus_spot; print(*(n for n in sys.modules if n.partition('.')[0] in ('numpy', 'dask')))"
    program += "; print(*(n for n in sys.modules if n.startswith('proteus_spot.')))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
