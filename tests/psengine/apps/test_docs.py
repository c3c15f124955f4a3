"""The examples of docs/bgd.md, docs/lda.md, docs/mf.md and docs/mlr.md print what the pages say."""

import contextlib
import io
import re
import runpy
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[3] / "docs"


@pytest.mark.parametrize("page", ["bgd", "lda", "mf", "mlr"])
def test_the_example_prints_what_the_page_says(page: str, tmp_path: Path) -> None:
    ((code, output),) = re.findall(r"```python\n(.*?)```\n\n    (.*?)\n", (DOCS / f"{page}.md").read_text(), re.DOTALL)
    (tmp_path / "example.py").write_text(code)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        runpy.run_path(str(tmp_path / "example.py"))
    assert printed.getvalue().strip() == output
