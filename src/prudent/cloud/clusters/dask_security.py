"""Proof of identity among the Dask processes of one run: certificates that nobody else has.

Whoever reaches a Dask worker may have it run anything. So both ends of every connection show a certificate of
an authority that is made for the run, on this computer's loopback too: other users share it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from prudent.core.errors import BadInput

_PAST = timedelta(days=1)
"""A machine whose clock is behind must not take a certificate for one of the future."""
_AHEAD = timedelta(days=365)


def made_for_run() -> Any:
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


def for_workers(security: Any) -> dict[str, str]:
    """What a worker needs of it. It is secret: never put it where others can read it, as in arguments."""
    return {
        "tls_ca_file": security.tls_ca_file,
        "tls_worker_cert": security.tls_worker_cert,
        "tls_worker_key": security.tls_worker_key,
    }


def of_worker(certificates: Mapping[str, str]) -> Any:
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
