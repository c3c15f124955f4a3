"""The key of a node's or controller's process, waited for where its job uses TLS."""

import argparse
import asyncio
import logging

from proteus_spot.infra.settings import load_settings
from proteus_spot.infra.storage.blobs import BlobError, Blobs
from proteus_spot.infra.tls.job_keys import RoleKey, read_key, uses_tls
from proteus_spot.psengine.rpc.cancellation import first_of

logger = logging.getLogger("proteus_spot.infra.nodes.keys")

_LOOK_S = 1.0


async def job_key(options: argparse.Namespace, blobs: Blobs, role: str, stop: asyncio.Event) -> RoleKey | None:
    """Return the key of `role` once it is in the bucket; None for a process of the loopback, or on `stop`.

    Parameters
    ----------
    options : those of `infra.nodes.main`.
    """
    if not uses_tls(options.host, load_settings().tls):
        return None
    said = ""
    while not stop.is_set():
        try:
            return await asyncio.to_thread(read_key, blobs, options.job, role)
        except BlobError as error:
            if str(error) != said:
                logger.warning("no key for this %s yet: %s", role, error)
            said = str(error)
            await first_of(stop.wait(), asyncio.sleep(_LOOK_S))
    return None
