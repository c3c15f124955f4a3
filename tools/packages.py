"""Count the packages that the core and each extra install: `python tools/packages.py`.

The names and what they need come from pyproject.toml and from the installed packages, which are those of the lock.
"""

import tomllib
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PYPROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"


def closure(wanted: Iterable[str]) -> set[str]:
    """Return the names of what requirements bring on this machine; PackageNotFoundError if one is not installed."""
    found: set[str] = set()
    done: set[tuple[str, str]] = set()
    to_do = [(requirement, "") for requirement in map(Requirement, wanted)]
    while to_do:
        requirement, extra = to_do.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        found.add(name)
        for of in ("", *requirement.extras):
            if (name, of) not in done:
                done.add((name, of))
                to_do += [(each, of) for each in map(Requirement, requires(name) or ())]
    return found


def main() -> None:
    """Print a line for the core, and one for what each extra adds to it."""
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    core = closure(project["dependencies"])
    print(f"{'core':16}{len(core):8,} locked packages")
    for extra, wanted in project["optional-dependencies"].items():
        if extra in ("all", "dev"):
            continue
        try:
            print(f"{extra:16}{len(closure(wanted) - core):8,} more")
        except PackageNotFoundError as error:
            print(f"{extra:16}{'':8} not installed: {error.name}")


if __name__ == "__main__":
    main()
