"""The page by itself: it stands alone, allows nothing else, and is written whole."""

import base64
import hashlib
import re
from pathlib import Path

import pytest

from proteus_spot.infra.errors import InputError
from proteus_spot.reports.pages.job_page import PageFigure, ReportPage, Table, render, write

EVIL = "<b>&\"'</script>"
PAGE = ReportPage(
    job_id=EVIL,
    state="finished",
    failure=None,
    stop="",
    period="then",
    figures=(PageFigure(EVIL, EVIL, EVIL),),
    chart={"job": EVIL, "line": "\u2028"},
    decisions=(),
    progress=(Table("t", EVIL, (EVIL, "n"), ((EVIL, "1"),), frozenset({1}), ((EVIL, "1"),), folded=True),),
    money=(),
    about=(),
    notes=(EVIL,),
)


def test_everything_is_escaped() -> None:
    text = render(PAGE)
    assert "<b>" not in text
    assert text.count("</script>") == 2
    assert "\u2028" not in text
    assert r'"job":"\u003cb\u003e\u0026\"' in text


def test_it_stands_alone() -> None:
    text = render(PAGE)
    elsewhere = re.findall(r"""(?:src|href|url|import|fetch|XMLHttpRequest)\s*[=(]\s*["']?([^"'\s)]*)""", text)
    assert set(elsewhere) <= {"#time", "#decisions", "#footprint", "#money", "#about", "data:,", "#hatch", "#${id}"}
    hosts = set(re.findall(r"[a-z]+://[^/\s\"']+", text))
    assert hosts == {"http://www.w3.org"}  # the name of the SVG namespace


def test_the_policy_allows_this_style_and_script_and_no_other() -> None:
    text = render(PAGE)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'")
    assert "unsafe" not in policy[1]
    for element, directive in (("style", "style-src"), ("script", "script-src")):
        found = re.search(rf"<{element}>(.*?)</{element}>", text, re.DOTALL)
        assert found is not None
        digest = base64.b64encode(hashlib.sha256(found[1].encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in policy[1]


def test_a_report_is_replaced_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "deep" / "report.html"
    write(PAGE, path)
    first = path.read_text()
    assert first == render(PAGE)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(InputError, match="cannot be written: No space left on device; name another with --out"):
        write(PAGE, path)
    assert path.read_text() == first
    assert list(path.parent.iterdir()) == [path]
