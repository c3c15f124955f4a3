"""The reaper: ends whatever is tagged ours and has no live order."""

from prefect import flow

from tasks.machines import orphans, terminate


@flow(name="reap")
async def reap() -> list[str]:
    """End the orphans; return their instance ids."""
    found = orphans()
    terminate(found)
    return found
