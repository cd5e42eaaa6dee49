"""Dask's scheduler and worker as Prudent runs them: one port each, and only for those with a certificate.

`python -m prudent.cloud.clusters.dask_node` is the worker on a machine. What it is to do comes in its
environment, for other users can read arguments; commands that it runs do not inherit it.

Whoever reaches a Dask worker may have it run anything. So both ends of every connection show a certificate of
an authority that is made for the run, on this computer's loopback too: other users share it.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from prudent.core.errors import BadInput

WORKER_ARGUMENTS = "PRUDENT_DASK"
"""The environment variable that holds the arguments of `serve` as JSON."""
_LOST_S = 60.0
_PAST = timedelta(days=1)
"""A machine whose clock is behind must not take a certificate for one of the future."""
_AHEAD = timedelta(days=365)


def without_pages(node: Any) -> Any:
    """A class of Dask's without its dashboard: nobody looks at it, and its port would let anybody in."""
    return type(node.__name__, (node,), {"start_http_server": _no_pages})


def _no_pages(self: Any, *_: Any, **__: Any) -> None:
    """Instead of Dask's own, which opens a port even where its dashboard is off."""


def scheduler(scratch: str, security: Any, host: str) -> Any:
    """A scheduler in this process, as a context manager; its files are in `scratch`."""
    import dask
    import distributed

    options = {"host": host, "port": 0, "protocol": "tls", "security": security, "dashboard": False}
    spec = {"cls": without_pages(distributed.Scheduler), "options": options}
    with dask.config.set({"temporary-directory": scratch}):
        return distributed.SpecCluster(scheduler=spec, security=security, silence_logs=60)


async def serve_worker(
    scheduler: str, name: str, threads: int, host: str, scratch: str, certificates: Mapping[str, str]
) -> None:
    """Be a worker of a scheduler until the end."""
    import distributed

    tempfile.tempdir = scratch  # Dask puts the key into a file for a moment; it goes with the scratch folder
    worker = without_pages(distributed.Worker)(
        scheduler,
        name=name,
        nthreads=threads,
        resources={"slot": threads},
        host=host,
        local_directory=scratch,
        memory_limit=0,
        death_timeout=_LOST_S,
        security=worker_security(certificates),
    )
    async with worker:
        await worker.finished()


def security_of_run() -> Any:
    """A `distributed.Security` of this run alone; the key of its authority is forgotten at once."""
    try:
        from cryptography.hazmat.primitives.asymmetric import ec
    except ModuleNotFoundError:
        raise BadInput(
            "Workers are only started with encryption, and the package cryptography is missing; install "
            '"prudent[workflows]".'
        ) from None
    from distributed import Security

    authority = ec.generate_private_key(ec.SECP256R1())
    root = _pem(_certificate("run", authority.public_key(), authority, authority=True))
    here_certificate, here_key = _leaf("here", authority)
    worker_certificate, worker_key = _leaf("worker", authority)
    return Security(
        require_encryption=True,
        tls_ca_file=root,
        tls_client_cert=here_certificate,
        tls_client_key=here_key,
        tls_scheduler_cert=here_certificate,
        tls_scheduler_key=here_key,
        tls_worker_cert=worker_certificate,
        tls_worker_key=worker_key,
    )


def worker_certificates(security: Any) -> dict[str, str]:
    """What a worker needs of it. It is secret: others must not be able to read it, so it is no argument."""
    return {
        "tls_ca_file": security.tls_ca_file,
        "tls_worker_cert": security.tls_worker_cert,
        "tls_worker_key": security.tls_worker_key,
    }


def worker_security(certificates: Mapping[str, str]) -> Any:
    """The `distributed.Security` of a worker that was given these."""
    from distributed import Security

    return Security(require_encryption=True, **certificates)


def _leaf(name: str, authority: Any) -> tuple[str, str]:
    """A certificate with its key, as text."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    kept = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return _pem(_certificate(name, key.public_key(), authority)), kept.decode()


def _certificate(name: str, key: Any, signer: Any, *, authority: bool = False) -> Any:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    now = datetime.now(UTC)
    usage = dict.fromkeys(
        (
            "content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "crl_sign",
            "encipher_only", "decipher_only",
        ),
        False,
    )  # fmt: skip
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(_name("run"))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _PAST)
        .not_valid_after(now + _AHEAD)
        .add_extension(x509.BasicConstraints(ca=authority, path_length=0 if authority else None), True)
        .add_extension(x509.KeyUsage(digital_signature=not authority, key_cert_sign=authority, **usage), True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), False)
        .sign(signer, hashes.SHA256())
    )


def _name(what: str) -> Any:
    from cryptography import x509

    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"prudent {what}")])


def _pem(certificate: Any) -> str:
    from cryptography.hazmat.primitives import serialization

    text: bytes = certificate.public_bytes(serialization.Encoding.PEM)
    return text.decode()


if __name__ == "__main__":
    os.makedirs("scratch", exist_ok=True)
    asyncio.run(
        serve_worker(**json.loads(os.environ.pop(WORKER_ARGUMENTS)), scratch=os.path.abspath("scratch"))
    )
