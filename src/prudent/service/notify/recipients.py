"""To whom a request may have mail sent: its sender, and the domains that the operator allows."""

from __future__ import annotations

from email.utils import parseaddr

from prudent.service.settings import Settings
from prudent.service.store.users import LOCAL, OPERATOR


def may_write_to(address: str, user: str, settings: Settings) -> bool:
    """Whether mail for `user` may go to an address; the operator writes to whom they like.

    >>> from pathlib import Path
    >>> ours = Settings(Path("/srv/prudent"), mail_domains=("example.org",))
    >>> [may_write_to(to, "mia@home.net", ours) for to in ("ada@Example.org", "mia@home.net", "x@evil.net")]
    [True, True, False]
    """
    plain = parseaddr(address)[1]
    if not plain or plain != address.strip() or any(letter in plain for letter in ",;<> \t\r\n\"'"):
        return False
    if user in (LOCAL.name, OPERATOR) or plain.lower() == user.lower():
        return True
    domain = plain.rpartition("@")[2].lower().rstrip(".")
    return domain in {each.lower().lstrip("@") for each in settings.mail_domains}
