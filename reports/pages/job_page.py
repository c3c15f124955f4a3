"""The HTML report of a job: its values, and their rendering as one file.

The file needs no network: it contains its style, script and data, and its content policy allows nothing else. All text
is escaped, whatever its source. The same values give the same bytes.
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

from proteus_spot.infra.errors import InputError

#: Escapes for characters that, in data, would end a script element or a line of JavaScript early.
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
    key : id of the table in the page, for links and scripts.
    numeric : indices of the right-aligned columns.
    foot : rows below a rule, such as sums.
    folded : whether the table is collapsed at first; in print it is open.
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
    """The location of a result, or the command that makes it.

    Attributes
    ----------
    url : target of the link; empty if a browser cannot open it.
    """

    label: str
    text: str
    url: str = ""


@dataclass(frozen=True, slots=True)
class DecisionRow:
    """A decision, or consecutive equal decisions without candidates.

    Attributes
    ----------
    index : index of the first one in the decisions of `chart`, which has the candidates.
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
    """The content of the report of a job.

    Attributes
    ----------
    chart : the series and marks on the time axis, JSON-able; `reports.pages.job_series` documents its keys.
    progress, money : the text tables below the chart, and those of the section on money.
    about : the job's parameters and its result.
    links : the model, the data, and the next commands.
    """

    job_id: str
    state: str
    failure: str | None
    stop: str
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
    """Write `page` to the file `path` atomically: a reader finds the old report or the new one.

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
        raise InputError(f"report {path}: cannot be written: {error.strerror}; name another with --out") from None


def _data(name: str) -> str:
    return files("proteus_spot.reports.pages").joinpath("templates", name).read_text("utf-8")


def _script() -> str:
    """Return the page's script, whose parts share one private scope."""
    # After an error the rest of the page stays visible.
    shown = 'addEventListener("error", () => { document.documentElement.dataset.drawn ||= "no"; });'
    parts = "\n".join(_data(name) for name in ("scale.js", "marks.js", "interaction.js"))
    return f'"use strict";\n{shown}\n(() => {{\n{parts}}})();\n'


def _digest(text: str) -> Markup:
    """Return the source expression that allows `text` in a content policy."""
    return Markup("sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode())


@cache
def _template() -> Any:
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(_data("job.html.j2"))
