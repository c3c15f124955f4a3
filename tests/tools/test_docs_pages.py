"""The pages of the documentation say what the program says, and their first steps work."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("bidding", "flows", "infra", "psengine", "studies", "tasks")
MOST_WORDS = 45_000
#: Pages that are read in the repository alone.
OUTSIDE = sorted([*ROOT.glob("*.md"), *(ROOT / "benchmarks").rglob("*.md")])


def anchors_of(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def texts_of(node: ast.AST) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.JoinedStr):
            yield "\0".join(str(value.value) for value in part.values if isinstance(value, ast.Constant))
        elif isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value


@pytest.fixture(scope="module")
def texts() -> str:
    files = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return "\0".join(text for path in files for text in texts_of(ast.parse(path.read_text("utf-8"))))


def messages(page: str) -> list[str]:
    """What the first column of the tables of a page quotes, but for codes of EC2."""
    rows = re.findall(r"^\| (`.*?) \|", (ROOT / "docs" / page).read_text("utf-8"), re.MULTILINE)
    quoted = [quote for row in rows for quote in re.findall(r"`([^`]+)`", row)]
    return [quote for quote in quoted if not re.fullmatch(r"[A-Z]\w+", quote)]


@pytest.mark.parametrize("page", ["troubleshooting.md", "questions.md"])
def test_a_page_quotes_messages_that_there_are(page: str, texts: str) -> None:
    quoted = messages(page)
    assert quoted
    parts = [part.strip() for quote in quoted for part in quote.split("…")]
    assert [part for part in parts if len(part) > 3 and part not in texts] == []


def test_every_page_is_on_the_site() -> None:
    config = (ROOT / "mkdocs.yml").read_text("utf-8")
    nav = yaml.safe_load(config[config.index("\nnav:") :])["nav"]
    named = {page for page in re.findall(r"[\w/-]+\.md", str(nav))}
    there = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert there == named


def test_the_quickstart_ends_with_the_classes_that_it_names(tmp_path: Path) -> None:
    found = re.search(r"```sh\n(.*?)```", (ROOT / "docs" / "quickstart.md").read_text("utf-8"), re.DOTALL)
    assert found is not None
    assert len(found[1].splitlines()) <= 15
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run(["sh", "-e", "-c", found[1]], cwd=tmp_path, env=environment, check=True, timeout=300)
    assert (tmp_path / "colours.csv").read_text().splitlines() == ["row,class", '0,"red"', '1,"blue"']


def test_the_pages_stay_short_enough_to_be_read() -> None:
    """All of docs/, but for the pages that are made from docstrings; figures of the papers are in benchmarks/papers."""
    pages = [path for path in (ROOT / "docs").rglob("*.md") if "api" not in path.parts]
    words = sum(len(path.read_text("utf-8").split()) for path in pages)
    assert words <= MOST_WORDS, "say it in fewer words, or where it is measured: benchmarks/"


@pytest.mark.parametrize("page", OUTSIDE, ids=[str(path.relative_to(ROOT)) for path in OUTSIDE])
def test_no_link_of_a_page_outside_the_site_leads_nowhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8"))
    paths = [link.split("#") for link in links if not link.startswith(("http", "#"))]
    assert [path for path, *_ in paths if not (page.parent / path).exists()] == []
    anchors = [(page.parent / path, anchor) for path, *rest in paths for anchor in rest]
    assert [anchor for path, anchor in anchors if anchor not in anchors_of(path)] == []


def test_no_link_of_the_site_leads_nowhere(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, check=False, capture_output=True, text=True, timeout=300)
    assert built.returncode == 0, built.stderr
    page = (tmp_path / "site" / "api" / "applications" / "index.html").read_text("utf-8")
    assert "class Application" in page or "proteus_spot.psengine.apps.base.Application" in page
