"""The controller's port for the control plane: a request and its answer are one line of JSON each.

Nodes run users' code, and Dask's messages are unpickled where they are received. So the control plane speaks no Dask:
it takes text from a controller, and nothing else.

A request is ``{"op": name, "arguments": {…}}``; the answer is ``{"answer": value}``, or ``{"error": line}``.
"""

import asyncio
import json
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from proteus_spot.psengine.telemetry.formatting import format_error

logger = logging.getLogger(__name__)

#: Maximum bytes of a request; that of a job has its parameters.
_MOST_BYTES = 1 << 24
#: Seconds within which a client has to send its request.
_REQUEST_S = 30.0

#: A coroutine function that takes the arguments and returns a value that JSON can hold.
Handler = Callable[..., Awaitable[Any]]


class ControlPort:
    """Serves `handlers`, by the name of the operation."""

    def __init__(self, handlers: Mapping[str, Handler]) -> None:
        self._handlers = handlers
        self._server: asyncio.Server | None = None
        self._client: str | None = None

    async def open(self, host: str, tls: ssl.SSLContext | None = None, client: str | None = None) -> int:
        """Listen on `host`; return the port.

        Parameters
        ----------
        tls : context that lets in only who has a key of the job; None: plain connections.
        client : the name in the certificate of those that are answered; None: any.
        """
        self._client = client
        self._server = await asyncio.start_server(self._serve, host, 0, limit=_MOST_BYTES, ssl=tls)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def close(self) -> None:
        """Accept no more connections."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self._client not in (None, _name_of(writer)):
                logger.warning("a request of a client that is no %s was not answered", self._client)
                return
            answer = await self._answer(reader)
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
        except OSError as error:  # the client has given up
            logger.info("a request was not answered: %s", error)
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader) -> dict[str, Any]:
        try:
            async with asyncio.timeout(_REQUEST_S):
                request = json.loads(await reader.readline())
            handler, arguments = self._handlers[request["op"]], dict(request["arguments"])
        except (TimeoutError, ValueError, KeyError, TypeError, RecursionError) as error:
            return {"error": f"no such request ({type(error).__name__})"}
        try:
            return {"answer": await handler(**arguments)}
        except Exception as error:
            logger.exception("%s failed", request["op"])
            return {"error": format_error(error)}


def _name_of(writer: asyncio.StreamWriter) -> str | None:
    """Return the common name in the certificate of a client; None without one."""
    certificate = writer.get_extra_info("peercert") or {}
    return next((value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"), None)
