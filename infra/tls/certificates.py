"""Makes a job's certificate authority and its keys, and puts the keys into the job's prefix in the bucket.

The authority's own key is never stored: it signs the keys of the roles, and is forgotten.
"""

import datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from proteus_spot.infra.clock import SystemClock
from proteus_spot.infra.settings import Settings
from proteus_spot.infra.storage.blobs import Blobs
from proteus_spot.infra.storage.job_paths import JobPaths
from proteus_spot.infra.tls.job_keys import ROLES, RoleKey, uses_tls

#: Longer than a job lasts; a day earlier, as clocks of machines differ.
_LASTS = datetime.timedelta(days=730)
_EARLIER = datetime.timedelta(days=1)


def ensure_keys(blobs: Blobs, job_id: str, settings: Settings) -> bool:
    """Put the keys of a job into the bucket, unless they are there or its nodes use no TLS; return whether they use it.

    One process at a time may begin a job. The last role's key says that all are there.
    """
    if not uses_tls(settings.node_host, settings.tls):
        return False
    paths = JobPaths(job_id)
    if not blobs.exists(paths.tls_key(ROLES[-1])):
        for role, key in make_keys(job_id, SystemClock().now_s()).items():
            blobs.write_json(paths.tls_key(role), key.to_json())
    return True


def make_keys(job_id: str, now_s: float) -> dict[str, RoleKey]:
    """Return a key for each role, signed by a new authority, in the order of `ROLES`."""
    now = datetime.datetime.fromtimestamp(now_s, datetime.UTC)
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = _name(f"proteus {job_id}")
    signed = _builder(authority, authority, authority_key, now).add_extension(
        x509.BasicConstraints(ca=True, path_length=0), critical=True
    )
    ca = _pem(signed.sign(authority_key, hashes.SHA256()))
    keys = {}
    for role in ROLES:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _builder(_name(role), authority, key, now).add_extension(
            x509.BasicConstraints(ca=False, path_length=None), critical=True
        )
        secret = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        keys[role] = RoleKey(ca, _pem(certificate.sign(authority_key, hashes.SHA256())), secret.decode())
    return keys


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common[:64])])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime.datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + _LASTS)
    )


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
