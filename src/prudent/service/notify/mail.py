"""Mail by SMTP: a letter of two parts, HTML and plain text."""

from __future__ import annotations

import re
import smtplib
import ssl
from collections.abc import Sequence
from dataclasses import replace
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import formatdate, parseaddr
from functools import cache
from typing import TYPE_CHECKING

from prudent.core.errors import BadInput, RunFailed
from prudent.service.notify.notice import EXHAUSTED, Notice
from prudent.service.settings import Settings
from prudent.service.store.runs import CANCELLED, FAILED, SUCCEEDED

if TYPE_CHECKING:
    from jinja2 import Environment

_WORDS = {SUCCEEDED: "Done", FAILED: "Failed", CANCELLED: "Cancelled", EXHAUSTED: "Budget used up"}
_COLOURS = {SUCCEEDED: "#007a5a", FAILED: "#a8326f", CANCELLED: "#6b7480", EXHAUSTED: "#b06c00"}
_PATIENCE_S = 30.0
_THIN = "\u200b"
_JOINT = re.compile(r"([:/@]|\.(?=[^\W\d]))(?=\S)")


class Undeliverable(RunFailed):
    """The receiver will never accept this message; it is not tried again."""


def mail_message(notice: Notice, settings: Settings) -> EmailMessage:
    """The mail about a run. Its id is the same whenever it is made: a mail client shows a second one once."""
    message = EmailMessage()
    word = _WORDS[notice.event]
    sender = settings.smtp_from or settings.smtp_user or "prudent@localhost"
    message["Subject"] = _line(f"{word}: “{notice.title}”")[:180]
    message["From"] = _address(sender)
    message["To"] = [_address(to) for to in notice.to]
    message["Date"] = formatdate(localtime=False)
    domain = parseaddr(sender)[1].rpartition("@")[2] or "localhost"
    message["Message-ID"] = f"<{notice.run}.{notice.event}@{domain}>"
    message["Auto-Submitted"] = "auto-generated"
    notice = unlinked(notice)
    values = {"notice": notice, "word": word, "colour": _COLOURS[notice.event], "table": _table(notice)}
    message.set_content(_templates().get_template("mail.txt.j2").render(values))
    message.add_alternative(_templates().get_template("mail.html.j2").render(values), subtype="html")
    return message


def unlinked(notice: Notice) -> Notice:
    """The notice with the words of its run's document such that no mail program makes links of them."""
    return replace(
        notice,
        title=_apart(notice.title),
        headline=_apart(notice.headline),
        error=_apart(notice.error),
        facts=tuple((name, _apart(value)) for name, value in notice.facts),
        rows=tuple(tuple(_apart(cell) for cell in row) for row in notice.rows),
    )


def _apart(text: str) -> str:
    """A space without width where an address would go on.

    >>> _apart("see https://evil.example/x, 3.5").replace(_THIN, "|")
    'see https:|/|/|evil.|example/|x, 3.5'
    """
    return _JOINT.sub(rf"\1{_THIN}", text)


def send(message: EmailMessage, settings: Settings) -> None:
    """Hand a letter to the mail server; RunFailed if it is not taken now, Undeliverable if never."""
    if settings.smtp_host is None:
        raise BadInput("There is no mail server; set smtp_host.")
    try:
        with _line_to(settings) as line:
            if settings.smtp_user is not None:
                line.login(settings.smtp_user, settings.smtp_password or "")
            line.send_message(message)
    except smtplib.SMTPRecipientsRefused as error:
        codes = [code for code, _ in error.recipients.values()]
        kind = Undeliverable if all(code >= 500 for code in codes) else RunFailed
        raise kind(f"The mail server takes no mail for this address ({codes[0]}); correct it.") from None
    except ssl.SSLCertVerificationError as error:
        raise RunFailed(
            f"The certificate of the mail server is not trusted ({error.verify_message.rstrip('.')}); "
            "correct it, or name its authority as smtp_ca."
        ) from None
    except (OSError, smtplib.SMTPException) as error:
        # The server's words could repeat what we sent it, so only the kind and the number are told.
        said = getattr(error, "smtp_code", None) or type(error).__name__
        raise RunFailed(
            f"The mail server did not take the mail ({said}); see that it is up, and what its log says."
        ) from None


def _line_to(settings: Settings) -> smtplib.SMTP:
    host, port = str(settings.smtp_host), settings.smtp_port
    if settings.smtp_security == "none":
        return smtplib.SMTP(host, port, timeout=_PATIENCE_S)
    trust = _trust(settings)
    if settings.smtp_security == "tls":
        return smtplib.SMTP_SSL(host, port, timeout=_PATIENCE_S, context=trust)
    line = smtplib.SMTP(host, port, timeout=_PATIENCE_S)
    try:
        line.starttls(context=trust)
    except (OSError, smtplib.SMTPException):
        line.close()
        raise
    return line


def _trust(settings: Settings) -> ssl.SSLContext:
    """The trusted authorities for the server's certificate: the system's, and those in `smtp_ca`."""
    context = ssl.create_default_context()
    if settings.smtp_ca is not None:
        try:
            context.load_verify_locations(settings.smtp_ca)
        except (OSError, ssl.SSLError) as error:
            raise RunFailed(
                f'The certificates "{settings.smtp_ca}" cannot be read ({error.strerror or "no PEM"}); '
                "correct smtp_ca."
            ) from None
    return context


def _address(text: str) -> Address:
    name, plain = parseaddr(text)
    if not plain or any(letter in text for letter in "\r\n"):
        raise Undeliverable("The address of the mail is none; correct it.")
    try:
        return Address(_line(name), addr_spec=plain)
    except (ValueError, IndexError) as error:
        raise Undeliverable("The address of the mail is none; correct it.") from error


def _line(text: str) -> str:
    """Text for a header: one line, so that it cannot begin another header."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def _table(notice: Notice) -> str:
    """The leaderboard as plain text in columns; numbers are aligned to the right."""
    lines: Sequence[tuple[str, ...]] = (notice.columns, *notice.rows)
    widths = [max(len(line[place]) for line in lines) for place in range(len(notice.columns))]
    aligned = (
        "  ".join(
            cell.ljust(width) if place < 2 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )
    return "\n".join(line.rstrip() for line in aligned)


@cache
def _templates() -> Environment:
    from jinja2 import Environment, PackageLoader, select_autoescape

    return Environment(
        loader=PackageLoader("prudent.service.notify"),
        autoescape=select_autoescape(("html.j2",)),
        trim_blocks=True,
        lstrip_blocks=True,
    )
