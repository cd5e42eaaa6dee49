"""A request to tune: the keys of a job file; a table may come along: {"table": {"csv": "…"}}."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from prudent.core.documents import KeyPath
from prudent.core.errors import BadInput
from prudent.service.intake.refusal import Refused, refusal
from prudent.service.security.data_locations import resolve_in_folders
from prudent.training.request.errors import RequestError
from prudent.tuning.job_file import JobFile

SOURCE = "the request"
_FILES = ("table", "progress")


def runs_programs(document: Mapping[str, Any]) -> bool:
    """Whether it would run a command or code of its own.

    >>> runs_programs({"command": "make"}), runs_programs({"table": "runs.csv"})
    (True, False)
    """
    return "command" in document or "function" in document


def parse(document: Mapping[str, Any], folders: Sequence[Path], keep: Path | None = None) -> JobFile:
    """The job file that a document says, with files looked for in the data folders only.

    Tables that came along are written into `keep`; at admission (None) they are not looked at.
    """
    said = {str(key): value for key, value in document.items()}
    wrong: list[RequestError] = []
    for key in _FILES:
        if key in said:
            try:
                said[key] = _file(said[key], key, folders, keep)
            except BadInput as error:
                wrong.append(RequestError(key, str(error)))
    theirs = "Price lists are the service's own; leave it out."
    wrong += [RequestError(path, theirs) for path in _catalogs(said)]
    directory = said.get("directory")
    if isinstance(directory, str):
        try:
            said["directory"] = str(resolve_in_folders(directory, folders))
        except BadInput as error:
            wrong.append(RequestError("directory", str(error)))
    place = said.get("where")
    if isinstance(place, Mapping):
        try:
            said["where"] = {name: _of_place(file, folders) for name, file in place.items()}
        except BadInput as error:
            wrong.append(RequestError("where", str(error)))
    folder = keep or folders[0]
    try:
        job_file = JobFile.parse(said, folder, "study", KeyPath(SOURCE))
        if "command" in said and not wrong:
            job_file.build()  # parameters, price and measures; nothing is run, nothing outside is looked at
    except Refused:
        raise
    except BadInput as error:
        wrong.append(_placed(str(error)))
    if wrong:
        raise Refused(wrong)
    return job_file


def _file(said: Any, key: str, folders: Sequence[Path], keep: Path | None) -> str:
    if isinstance(said, Mapping):
        text = said.get("csv")
        if not isinstance(text, str) or set(said) != {"csv"}:
            raise refusal('Give {"csv": "…"} or the name of a file in a data folder.')
        if keep is None:
            return f"{key}.csv"
        (keep / f"{key}.csv").write_text(text, encoding="utf-8")
        return str((keep / f"{key}.csv").resolve())
    if not isinstance(said, str) or not said:
        raise refusal('Give {"csv": "…"} or the name of a file in a data folder.')
    return str(resolve_in_folders(said, folders))


def _of_place(said: Any, folders: Sequence[Path]) -> Any:
    """The file that describes the machines of a place (an inventory, or the configuration of EC2)."""
    return str(resolve_in_folders(said, folders)) if isinstance(said, str) and said else said


def _catalogs(said: Mapping[str, Any]) -> list[str]:
    price, parameters = said.get("price"), said.get("parameters")
    found = ["price.catalog"] if isinstance(price, Mapping) and price.get("catalog") is not None else []
    for name, spec in parameters.items() if isinstance(parameters, Mapping) else ():
        if isinstance(spec, Mapping) and spec.get("catalog") is not None:
            found.append(f"parameters.{name}.catalog")
    return found


def _placed(message: str) -> RequestError:
    """An error that names its place in words, at its JSON path.

    >>> _placed("the request, parameters.batch: The list is empty; add a value.").path
    'parameters.batch'
    """
    place, sign, words = message.partition(": ")
    if not sign or not place.startswith(SOURCE):
        return RequestError("", message)
    return RequestError(place.removeprefix(SOURCE).removeprefix(", "), words)
