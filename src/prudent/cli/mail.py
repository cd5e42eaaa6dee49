"""The mail that a request asks for when it is answered here: to the mail server that a service would use."""

from __future__ import annotations

import getpass
import os
from pathlib import Path
from typing import TYPE_CHECKING

from prudent.cli.console import complain
from prudent.core.errors import PrudentError

if TYPE_CHECKING:
    from prudent.service.settings import Settings
    from prudent.training.leaderboard import Leaderboard
    from prudent.training.request.request import TrainingRequest

_SMTP = "PRUDENT_SMTP_"


def mail_settings(address: str | None) -> Settings | None:
    """How to send mail, from the variables PRUDENT_SMTP_*; None, and a word about it, without a server."""
    from prudent.service.settings import load

    if address is None:
        return None
    settings = load(
        {}, environment={name: said for name, said in os.environ.items() if name.startswith(_SMTP)}
    )
    if settings.smtp_host is None:
        complain(f"no mail will go to {address}, for there is no mail server; set {_SMTP}HOST to one.")
        return None
    return settings


def mail_answer(board: Leaderboard, asked: TrainingRequest, settings: Settings) -> None:
    """Send the ranking to the request's address; a mail that cannot be sent must not cost the answer."""
    assert asked.email_address is not None
    try:
        from prudent.service.notify.mail import mail_message, send
        from prudent.service.notify.notice import notice_of_board
    except ImportError as error:
        complain(f'the mail was not sent, for {error.name} is missing; pip install "prudent[serve]".')
        return
    data = "" if asked.dataset is None else f" of {Path(asked.dataset.path).name}"
    notice = notice_of_board(board, f"{asked.domain.capitalize()}{data}", _user(), asked.email_address)
    ranking = Path(board.out) / "leaderboard.csv"
    try:
        message = mail_message(notice, settings)
        if ranking.is_file():
            message.add_attachment(ranking.read_text(encoding="utf-8"), subtype="csv", filename=ranking.name)
        send(message, settings)
    except PrudentError as error:
        complain(f"the mail to {asked.email_address} was not sent. {error}")
    else:
        complain(f"the ranking was mailed to {asked.email_address}.")


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # an account without a name, as in some containers
        return "somebody"
