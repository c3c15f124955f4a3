"""The browser that the pages of these tests are shown in, one for each module."""

from collections.abc import Iterator

import pytest

from tests.support.chromium import Chromium


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with Chromium() as opened:
        yield opened
