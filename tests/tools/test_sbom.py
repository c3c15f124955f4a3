"""The SBOM and the list of licences have every package that the lock pins."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
LOCK = (
    "one==1.0 \\\n    --hash=sha256:" + "0" * 64 + "\n"
    "two==2.0.post1 ; sys_platform == 'win32' \\\n"
    "    --hash=sha256:" + "1" * 64 + " \\\n    --hash=sha256:" + "2" * 64 + "\n"
)


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("sbom", ROOT / "tools" / "sbom.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules["sbom"] = module
    spec.loader.exec_module(module)
    return module


def test_every_pin_is_a_component(tool: ModuleType) -> None:
    packages = tool.read_packages(LOCK)
    made = tool.sbom(packages, "0.2.0")
    assert (made["bomFormat"], made["specVersion"]) == ("CycloneDX", "1.6")
    assert [(one["name"], one["version"]) for one in made["components"]] == [("one", "1.0"), ("two", "2.0.post1")]
    assert made["components"][0]["hashes"] == [{"alg": "SHA-256", "content": "0" * 64}]
    assert "hashes" not in made["components"][1]


def test_the_page_lists_every_locked_package(tool: ModuleType) -> None:
    """If it does not: `make sbom`."""
    listed = set(re.findall(r"^\| ([a-z0-9-]+) \|", (ROOT / "LICENCES.md").read_text(), re.MULTILINE))
    packages = tool.read_packages((ROOT / "requirements.lock").read_text())
    assert {package.name for package in packages} <= listed
    assert sum(bool(package.licence) for package in packages) > 0.8 * len(packages)
    assert tool.licence_of("boto3").startswith("Apache")
    assert tool.licence_of("no-such-package") == ""
