"""The logs and the exit code of a machine's process."""

import asyncio
import faulthandler
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from proteus_spot.infra.errors import ProteusError
from proteus_spot.infra.masking import mask_logs


def log_to_console() -> None:
    """Log to standard error, without secrets; a crash prints its traces."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    mask_logs()
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it would log every poll for a notice
    faulthandler.enable()


def exit_code(run: Callable[[], Coroutine[Any, Any, int]], logger: logging.Logger) -> int:
    """Run a process to its end; return its exit code. Errors are logged, while the log is still being stored."""
    try:
        return asyncio.run(run())
    except ProteusError as error:
        logger.error("%s", error)
        return error.exit_code
    except Exception:
        logger.exception("internal error")
        return 1
