"""Paths that a request names stay in the folders that the operator allows."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from prudent.core.errors import BadInput


def within(path: str, roots: Sequence[Path]) -> Path:
    """The file that `path` names, if it lies below one of `roots` after all links are followed.

    A relative path is looked for below each root. Nothing is said about files outside, not even whether they
    exist: the answer is the same.
    """
    plain = _plain(path)
    for root in roots:
        base = root.expanduser().resolve()
        found = Path(os.path.realpath(base / plain))
        if found.is_relative_to(base) and (found.exists() or len(roots) == 1 or plain.is_absolute()):
            return found
    raise _outside(path, roots)


def _plain(path: str) -> Path:
    if not path or len(path) > 4096 or any(ord(letter) < 32 or ord(letter) == 127 for letter in path):
        raise BadInput("A path must have 1 to 4096 printable characters; correct it.")
    text = unquote(urlsplit(path).path) if path.lower().startswith("file:") else path
    if "\0" in text or "\\" in text or text.startswith("~"):
        raise BadInput(f'"{path}" is no path here; write it with / and without ~.')
    if ".." in Path(text).parts:
        raise BadInput(f'"{path}" goes up with ".."; write the path that is meant.')
    return Path(text)


def _outside(path: str, roots: Sequence[Path]) -> BadInput:
    if not roots:
        return BadInput(
            f'"{path}" is a path on the server, and none may be read; use an http, https or s3 address.'
        )
    return BadInput(f'"{path}" is outside the folders that are read here; put the data into one of them.')
