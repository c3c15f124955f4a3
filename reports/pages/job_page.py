"""The HTML report of a job: what it shows, as values, and the one file that they become.

The file needs no network and asks for none: style, script and data stand in it, and its content policy allows nothing
else. All text is escaped, whoever it came from. The same values give the same bytes.
"""

import base64
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from infra.errors import InputError

#: What ends a script element early, or a line of JavaScript, when it stands in data.
_UNSAFE = str.maketrans({c: f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"})


@dataclass(frozen=True, slots=True)
class PageFigure:
    """One of the figures at the top."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table as text, row by row.

    Attributes
    ----------
    key : names it in the page, for links and for scripts.
    numeric : the columns, by index, that are set to the right.
    foot : rows that stand under a rule, as sums do.
    folded : whether it is closed until asked for; in print it is open.
    """

    key: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[int] = frozenset()
    foot: tuple[tuple[str, ...], ...] = ()
    folded: bool = False


@dataclass(frozen=True, slots=True)
class Link:
    """Where something is, or the command that makes it.

    Attributes
    ----------
    url : what a press on the text opens; empty where a browser opens nothing.
    """

    label: str
    text: str
    url: str = ""


@dataclass(frozen=True, slots=True)
class DecisionRow:
    """A decision, or several in a row that said the same with nothing to choose from.

    Attributes
    ----------
    index : of the first among the decisions of `chart`, where its candidates are.
    at_s : seconds after the job was recorded.
    """

    index: int
    at_s: int
    time: str
    verdict: str
    subject: str
    cost_per_work: str
    reason: str
    candidates: int


@dataclass(frozen=True, slots=True)
class ReportPage:
    """All that the report of a job says.

    Attributes
    ----------
    chart : the series and marks on the time axis, JSON-able; `reports.pages.job_series` says what is in it.
    money, before : the tables of the section on money, and those that stand under the chart instead of it.
    about : the job's parameters and its result.
    links : the model, the data, and the commands that go on with the job.
    """

    job_id: str
    state: str
    failure: str | None
    period: str
    figures: tuple[PageFigure, ...]
    chart: Mapping[str, Any]
    decisions: tuple[DecisionRow, ...]
    progress: tuple[Table, ...]
    money: tuple[Table, ...]
    about: tuple[Table, ...]
    notes: tuple[str, ...] = field(default=())
    links: tuple[Link, ...] = ()


def render(page: ReportPage) -> str:
    """Return `page` as one HTML file."""
    style, script = _data("job.css"), _script()
    text: str = _template().render(
        page=page,
        style=Markup(style),
        script=Markup(script),
        style_hash=_digest(style),
        script_hash=_digest(script),
        data=Markup(json.dumps(page.chart, allow_nan=False, separators=(",", ":")).translate(_UNSAFE)),
        verdicts=sorted({row.verdict for row in page.decisions}),
    )
    return text


def write(page: ReportPage, path: Path) -> None:
    """Write `page` to the file `path`: a reader finds the old report or the new one, never a part.

    Raises
    ------
    InputError
        If the file cannot be written there.
    """
    text = render(page).encode()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise IsADirectoryError(None, "is a directory")
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(text)
            os.chmod(name, 0o644)
            os.replace(name, path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InputError(f"report {path}: cannot be written: {error.strerror}; name another with --output") from None


def _data(name: str) -> str:
    return files("reports.pages").joinpath("templates", name).read_text("utf-8")


def _script() -> str:
    """Return the page's script: its parts share one scope, which nothing outside sees."""
    # What could not be drawn hides nothing else.
    shown = 'addEventListener("error", () => { document.documentElement.dataset.drawn ||= "no"; });'
    parts = "\n".join(_data(name) for name in ("scale.js", "marks.js", "interaction.js"))
    return f'"use strict";\n{shown}\n(() => {{\n{parts}}})();\n'


def _digest(text: str) -> Markup:
    """Return what a content policy allows `text` by."""
    return Markup("sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode())


@cache
def _template() -> Any:
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(_data("job.html.j2"))
