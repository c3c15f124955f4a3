"""The examples of docs/lda.md, docs/mf.md and docs/mlr.md print what the pages say."""

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).resolve().parents[3] / "docs"


@pytest.mark.parametrize("page", ["lda", "mf", "mlr"])
def test_the_example_prints_what_the_page_says(page: str) -> None:
    found = re.findall(r"```python\n(.*?)```\n\n    (.*?)\n", (DOCS / f"{page}.md").read_text(), re.DOTALL)
    assert len(found) == 1
    printed, names = io.StringIO(), dict[str, Any]()
    with contextlib.redirect_stdout(printed):
        exec(compile(found[0][0], f"{page}.md", "exec"), names)  # noqa: S102 - the page's own code
    assert printed.getvalue().strip() == found[0][1]
