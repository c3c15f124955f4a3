"""Writes what requirements.lock pins as a CycloneDX document and as a list of licences.

``python tools/sbom.py SBOM.json LICENCES.md``. Licences are those that the installed packages name; a package for
another platform, and so not installed here, is listed without one.
"""

import json
import re
import sys
import tomllib
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import quote

ROOT = Path(__file__).resolve().parent.parent
_PIN = re.compile(r"^([a-z0-9][a-z0-9-]*)==([^ \\]+)(.*)$")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_LONGEST = 60


@dataclass(frozen=True)
class Package:
    """A pinned package; `licence` is empty where none is known here."""

    name: str
    version: str
    hashes: tuple[str, ...]
    licence: str


def read_packages(lock: str) -> list[Package]:
    """Return the packages of a lock, by name."""
    found: list[Package] = []
    name, version, hashes = "", "", list[str]()
    for line in [*lock.splitlines(), "end==0"]:
        if pin := _PIN.match(line):
            if name:
                found.append(Package(name, version, tuple(hashes), licence_of(name)))
            name, version, hashes = pin[1], pin[2], []
        hashes += _HASH.findall(line)
    return sorted(found, key=lambda package: package.name)


def licence_of(name: str) -> str:
    """Return the licence that an installed package names; empty if it is not installed, or names none."""
    try:
        about = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return ""
    if expression := about.get("License-Expression"):
        return str(expression)
    named = [text.rpartition(" :: ")[2] for text in about.get_all("Classifier") or () if text.startswith("License ::")]
    named = [text for text in named if text != "OSI Approved"]
    first = (about.get("License") or "").strip().splitlines()[:1]
    return ", ".join(named) or (first[0] if first and len(first[0]) <= _LONGEST else "")


def sbom(packages: list[Package], version: str) -> dict[str, Any]:
    """Return the CycloneDX document (1.6) of the packages."""
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": "proteus-spot", "version": version}},
        "components": [_component(package) for package in packages],
    }


def _component(package: Package) -> dict[str, Any]:
    purl = f"pkg:pypi/{package.name}@{quote(package.version)}"
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": purl,
        "name": package.name,
        "version": package.version,
        "purl": purl,
    }
    if package.licence:
        component["licenses"] = [{"license": {"name": package.licence}}]
    if len(package.hashes) == 1:  # of several files, none is the package's
        component["hashes"] = [{"alg": "SHA-256", "content": package.hashes[0]}]
    return component


def licences_page(packages: list[Package]) -> str:
    """Return the page that lists the licences."""
    rows = [f"| {package.name} | {package.licence or '(see its own page)'} |" for package in packages]
    head = "Made by `make sbom` from requirements.lock; licences are those that the packages name."
    return "\n".join(
        ["# Licences of the locked packages", "", head, "", "| package | licence |", "|---|---|", *rows, ""]
    )


def main(sbom_file: str, page: str) -> None:
    """Write both."""
    packages = read_packages((ROOT / "requirements.lock").read_text())
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    Path(sbom_file).parent.mkdir(parents=True, exist_ok=True)
    Path(sbom_file).write_text(json.dumps(sbom(packages, version), indent=1) + "\n")
    Path(page).write_text(licences_page(packages))
    print(f"{len(packages)} packages: {sbom_file}, {page}")


if __name__ == "__main__":
    main(*sys.argv[1:])
