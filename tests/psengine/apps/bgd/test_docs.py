"""The example of docs/bgd.md prints what the page says."""

import contextlib
import io
import re
import runpy
from pathlib import Path

PAGE = Path(__file__).resolve().parents[4] / "docs" / "bgd.md"


def test_the_example_prints_what_the_page_says(tmp_path: Path) -> None:
    text = PAGE.read_text()
    found = re.search(r"```python\n(.*?)```\n\n    (.*?)\n", text, re.DOTALL)
    assert found is not None
    (tmp_path / "example.py").write_text(found[1])
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        runpy.run_path(str(tmp_path / "example.py"))
    assert printed.getvalue().strip() == found[2]
