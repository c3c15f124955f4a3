"""Reads the key of a role from the job's prefix in the bucket, for Dask and for the controller's port.

Any process that may read the job's prefix has its keys: the nodes by their instance profile, and the worker. A process
decides by its own settings whether it uses TLS, never by what it reads.
"""

import ssl
import tempfile
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from proteus_spot.infra.settings import load_settings
from proteus_spot.infra.storage.blobs import BlobError, Blobs, open_blobs
from proteus_spot.infra.storage.job_paths import JobPaths

if TYPE_CHECKING:
    from distributed.security import Security

#: The roles: a node, the controller, and the worker that calls the controller's port.
NODE, CONTROLLER, HEAD = "node", "controller", "head"
#: The controller's key is written last.
ROLES = (NODE, HEAD, CONTROLLER)
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, slots=True, repr=False)
class RoleKey:
    """The authority's certificate, and the certificate and private key of a role, as PEM texts."""

    ca: str
    certificate: str
    key: str

    def to_json(self) -> dict[str, str]:
        """Return it as a JSON object."""
        return asdict(self)


def uses_tls(host: str | None, tls: Literal["auto", "on"]) -> bool:
    """Return whether processes that listen on `host` use TLS: on the loopback only if the setting forces it."""
    return tls == "on" or host not in _LOOPBACK


def read_key(blobs: Blobs, job_id: str, role: str) -> RoleKey:
    """Return the key of a role.

    Raises
    ------
    BlobError
        If it is not there, cannot be read, or is not a key.
    """
    name = JobPaths(job_id).tls_key(role)
    try:
        return RoleKey(**blobs.read_json(name))
    except TypeError:
        raise BlobError(f"{blobs.url_of(name)}: is not a key of a job") from None


def dask_security(key: RoleKey) -> "Security":
    """Return Dask's settings for a process that has `key`: peers without a key of the same authority are refused."""
    from distributed.security import Security

    pair: dict[str, Any] = {}
    for role in ("client", "worker", "scheduler"):
        pair |= {f"tls_{role}_cert": key.certificate, f"tls_{role}_key": key.key}
    return Security(tls_ca_file=key.ca, require_encryption=True, **pair)  # type: ignore[no-untyped-call]


def server_context(key: RoleKey) -> ssl.SSLContext:
    """Return the context of a port that takes clients with a key of the same authority."""
    return _context(key, ssl.PROTOCOL_TLS_SERVER)


@lru_cache(maxsize=64)
def head_context(blob_url: str | None, job_id: str) -> ssl.SSLContext:
    """Return the context of the worker's calls to a job's controller; the key of a job never changes.

    Raises
    ------
    BlobError
        If the key cannot be read.
    """
    settings = load_settings()
    if blob_url is not None:
        settings = settings.model_copy(update={"blob_url": blob_url})
    return _context(read_key(open_blobs(settings), job_id, HEAD), ssl.PROTOCOL_TLS_CLIENT)


def _context(key: RoleKey, protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # addresses are not known when the keys are made; the name is that of the role
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=key.ca)
    with tempfile.NamedTemporaryFile("w", prefix="proteus-key-", suffix=".pem") as file:  # mode 600
        file.write(key.key + key.certificate)
        file.flush()
        context.load_cert_chain(file.name)
    return context
