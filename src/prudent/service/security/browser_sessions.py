"""Browser sessions: a signed cookie that holds no secret, and the form token that belongs to it."""

from __future__ import annotations

import base64
import binascii
import fcntl
import hashlib
import hmac
import os
import secrets
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from pathlib import Path

COOKIE = "prudent_session"
LASTS_S = 12 * 3600
_LONGEST = 400


@dataclass(frozen=True)
class BrowserSessions:
    """Makes and reads session cookies.

    A cookie is `name.until.nonce.signature`; the signature also covers the hash of the user's token, so that
    a new token, or none, ends all sessions that the old one began.
    """

    key: bytes
    signed_out: RevokedSessions | None = None

    def begin(self, name: str, token_hash: str, now_s: float) -> str:
        """The cookie's value for this user."""
        head = f"{_text(name.encode())}.{int(now_s) + LASTS_S}.{secrets.token_urlsafe(12)}"
        return f"{head}.{self._signature(head, token_hash)}"

    def name(self, value: str, now_s: float) -> str | None:
        """Whose session it says it is, if it has not ended; `valid` tells whether that is true."""
        parts = value.split(".")
        if len(value) > _LONGEST or len(parts) != 4 or not parts[1].isdecimal() or int(parts[1]) < now_s:
            return None
        try:
            return base64.urlsafe_b64decode(parts[0] + "=" * (-len(parts[0]) % 4)).decode()
        except (binascii.Error, ValueError):
            return None

    def valid(self, value: str, token_hash: str) -> bool:
        """Whether this service signed the cookie, for the holder of this token."""
        head, _, signature = value.rpartition(".")
        if self.signed_out is not None and value in self.signed_out:
            return False
        return hmac.compare_digest(signature.encode(), self._signature(head, token_hash).encode())

    def end(self, value: str, now_s: float) -> None:
        """Sign out: the cookie is worth nothing from now on, whoever has a copy."""
        if self.signed_out is not None and self.name(value, now_s) is not None:
            self.signed_out.add(value, now_s)

    def form_token(self, value: str) -> str:
        """What a form of this session carries, so that no other site can send one."""
        return _text(hmac.digest(self.key, b"form:" + value.encode(), "sha256"))

    def is_form_token(self, value: str, token: str) -> bool:
        """Constant time, as for every secret."""
        return hmac.compare_digest(self.form_token(value).encode(), token.encode())

    def _signature(self, head: str, token_hash: str) -> str:
        return _text(hmac.digest(self.key, f"session:{head}:{token_hash}".encode(), hashlib.sha256))


@dataclass
class RevokedSessions:
    """The cookies that were signed out and have not run out, by their hashes; a file that processes share."""

    file: Path
    _known: frozenset[str] = frozenset()
    _read: tuple[int, int] | None = None

    def add(self, value: str, now_s: float) -> None:
        """Append; and before that, once in a while, drop those that have run out."""
        line = f"{int(now_s) + LASTS_S} {_digest(value)}\n"
        handle = os.open(self.file, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(handle, "r+", encoding="ascii") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            lines = file.readlines()
            good = [each for each in lines if each.split()[0].isdecimal() and int(each.split()[0]) >= now_s]
            if len(good) < len(lines) / 2:
                file.truncate(0)
                file.writelines(good)
            file.write(line)

    def __contains__(self, value: str) -> bool:
        try:
            found = self.file.stat()
        except FileNotFoundError:
            return False
        if (stamp := (found.st_mtime_ns, found.st_size)) != self._read:
            words = (line.split() for line in self.file.read_text(encoding="ascii").splitlines())
            self._known = frozenset(each[1] for each in words if len(each) == 2)
            self._read = stamp
        return _digest(value) in self._known


def _digest(value: str) -> str:
    return hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()


def session_key(file: Path) -> bytes:
    """The signing key of this installation; made at the first start, readable by its owner only."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".{file.name}.{os.getpid()}")
    if not file.exists():
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "wb") as out:
            out.write(secrets.token_bytes(32))
        try:
            os.link(part, file)  # whoever is first wins, and nobody reads half a key
        except FileExistsError:
            pass
        finally:
            part.unlink()
    return file.read_bytes()


def cookie_of(header: str) -> str:
    """The session's value in a Cookie header, or nothing.

    >>> cookie_of("a=1; prudent_session=xyz")
    'xyz'
    """
    if COOKIE not in header:
        return ""
    try:
        found = SimpleCookie(header).get(COOKIE)
    except CookieError:
        return ""
    return found.value if found is not None else ""


def set_cookie(value: str, secure: bool) -> str:
    """The Set-Cookie header; an empty value ends the session."""
    age = LASTS_S if value else 0
    return f"{COOKIE}={value}; Path=/; Max-Age={age}; HttpOnly; SameSite=Strict" + (
        "; Secure" if secure else ""
    )


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
