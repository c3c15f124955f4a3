"""The examples of properties and state machines are the same in every run, whatever a process has imported before."""

import os

import pytest
from hypothesis.internal.conjecture import providers


@pytest.mark.skipif(os.environ.get("HYPOTHESIS_PROFILE", "default") != "default", reason="explores")
def test_no_example_comes_from_the_constants_of_imported_modules() -> None:
    assert len(providers._get_local_constants()) == 0
