"""What two processes report of an application."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from proteus_spot.infra.errors import InputError
from proteus_spot.tasks.local_nodes.two_process_check import compare, report_of

RUN = ("run, partition 0, clock 1", "run, partition 1, clock 1", "run, partition 0, clock 2")


def report(*bits: str, faults: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"faults": list(faults), "digests": dict(zip(RUN, bits, strict=False))}


def test_the_first_call_whose_bits_differ_is_named_once() -> None:
    assert compare(report("a", "b", "c"), report("a", "b", "c")) == ()
    (line,) = compare(report("a", "b", "c"), report("a", "x", "y"))
    assert line.startswith("run, partition 1, clock 1: other bits in another process; ")
    assert compare(report("a", "b"), report("a")) == ()  # one of them came to a fault, which it names


def test_a_fault_that_both_found_is_one_line_and_explains_other_bits() -> None:
    fault = "run, partition 0, clock 1: other bits the second time"
    assert compare(report("a", faults=(fault,)), report("b", faults=(fault, "evaluate: 1"))) == (fault, "evaluate: 1")


def test_a_process_that_is_killed_is_a_fault_and_one_that_refuses_is_bad_input(tmp_path: Path) -> None:
    def ended(code: int) -> Any:
        return SimpleNamespace(wait=lambda: code, cause=lambda: "Segmentation fault")

    assert report_of(ended(-11), tmp_path / "none")["faults"] == [
        "the process ended with signal 11 (SIGSEGV): Segmentation fault"
    ]
    assert "exit code 0" in report_of(ended(0), tmp_path / "none")["faults"][0]
    (tmp_path / "refused").write_text('{"refused": "app mine:App cannot be imported"}')
    with pytest.raises(InputError, match="app mine:App cannot be imported"):
        report_of(ended(0), tmp_path / "refused")
