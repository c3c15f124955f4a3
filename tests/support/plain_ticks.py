"""Ticks without Prefect: the code of the flow, with plain functions in place of Prefect's tasks, and no artifacts."""

import logging
import sys
from collections.abc import Callable
from typing import Any

import pytest

import proteus_spot.flows.allocation_tick
from proteus_spot.tasks.task_runtime import RuntimeTask
from tests.support.task_runtime import plain

#: What a tick shows in the Prefect UI, or books there.
_SHOWN = ("book_renewals", "show_job_now_and_then")


def plain_tick(patch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Return the tick of a job as a plain function; every task of `tasks` and `flows` is one, too, from now on."""
    for name, module in list(sys.modules.items()):
        if name.startswith(("proteus_spot.tasks", "proteus_spot.flows")):
            for attribute, value in list(vars(module).items()):
                if isinstance(value, RuntimeTask):
                    patch.setattr(module, attribute, plain(value))
    for shown in _SHOWN:
        patch.setattr(proteus_spot.flows.allocation_tick, shown, _show_nothing)
    patch.setattr(proteus_spot.flows.allocation_tick, "get_run_logger", logging.getLogger)
    return proteus_spot.flows.allocation_tick.tick_job


def _show_nothing(*_: Any) -> None:
    return None
