"""The examples of docs/engine.md print what the page says."""

import contextlib
import io
import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[2] / "docs" / "engine.md"


def test_the_examples_print_what_the_page_says() -> None:
    examples = re.findall(r"```python\n(.*?)```\n\n    (.*?)\n", PAGE.read_text(), re.DOTALL)
    assert len(examples) == 2
    names: dict[str, Any] = {}
    for code, expected in examples:  # each goes on from the one before
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, PAGE.name, "exec"), names)  # noqa: S102 - the page's own code
        assert printed.getvalue().strip() == expected


def test_the_modules_that_the_page_names_exist() -> None:
    named = set(re.findall(r"`([a-z_]+/[a-z_/]+\.py)`", PAGE.read_text()))
    assert len(named) > 20
    roots = PAGE.parents[1], PAGE.parents[1] / "psengine"
    assert not [name for name in sorted(named) if not any((root / name).exists() for root in roots)]
