"""The HTML report of a backtest or of a local training: its values, and their rendering as one file.

The file needs no network and no script: it contains its style and its pictures as SVG, and its content policy allows
nothing else. All text is escaped. The same values give the same bytes.
"""

import base64
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from proteus_spot.infra.files import write_whole
from proteus_spot.reports.pages.job_page import PageFigure, Table


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure: its title, its description (also the alternative text), and the SVG."""

    key: str
    title: str
    caption: str
    svg: bytes

    @property
    def url(self) -> str:
        """The picture as a data URL."""
        return f"data:image/svg+xml;base64,{base64.b64encode(self.svg).decode()}"


@dataclass(frozen=True, slots=True)
class BacktestPage:
    """The content of the report of a backtest or a training.

    Attributes
    ----------
    warnings : reasons to distrust the figures; shown first.
    notes : further remarks on the figures.
    figures : figures of the cards at the top.
    kind : subject of the report.
    """

    title: str
    period: str
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    figures: tuple[PageFigure, ...]
    pictures: tuple[Picture, ...]
    tables: tuple[Table, ...]
    kind: str = "backtest"


def render(page: BacktestPage) -> str:
    """Return `page` as one HTML file."""
    style = _data("figures.css")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    text: str = _template().render(page=page, style=Markup(style), style_hash=Markup(f"sha256-{digest}"))
    return text


def write(page: BacktestPage, path: Path) -> None:
    """Write `page` to the file `path` atomically; raise `InputError` if it cannot be written."""
    write_whole(path, render(page).encode())


def _data(name: str) -> str:
    return files("proteus_spot.reports.pages").joinpath("templates", name).read_text("utf-8")


@cache
def _template() -> Any:
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(_data("figures.html.j2"))
