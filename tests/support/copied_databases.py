"""Heads on copies of a state database: backups that came back."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from proteus_spot.infra.runtime import Runtime
from proteus_spot.infra.state.store import Store


def on_a_copy(runtime: Runtime, path: Path) -> Runtime:
    """Return a head on a copy of another one's database, as it is now; they share market, bucket and clock."""
    source = runtime.settings.database_url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(path)) as new:
        old.backup(new)
    settings = runtime.settings.model_copy(update={"database_url": f"sqlite:///{path}"})
    return replace(runtime, settings=settings, store=Store.open(f"sqlite:///{path}"))
