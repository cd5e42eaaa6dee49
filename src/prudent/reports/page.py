"""The skeleton of every report: one HTML file with its own style and scripts, which loads nothing.

A report outlives the machine that made it, so it must open years later without a network. The page forbids
itself by its Content-Security-Policy to load anything or to run a script other than the ones written here:
what users wrote (names, values, error messages) stays text, even if an escape were forgotten.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prudent.core.errors import BadInput
from prudent.reports import words
from prudent.reports.plots import Figure

if TYPE_CHECKING:
    from jinja2 import Environment

_TEMPLATES = Path(__file__).parent / "templates"


def render(template: str, figures: Sequence[Figure], **content: Any) -> str:
    """The whole page of a template that extends `page.html.j2`; `figures` are those it places.

    Without a figure Plotly is left out, and the page is a few kilobytes instead of five megabytes.
    """
    scripts = [_read("page.js")]
    if figures:
        scripts = [plotly(), _read("figures.js"), *scripts]
    return (
        _environment()
        .get_template(template)
        .render(style=_read("page.css"), scripts=scripts, policy=_policy(scripts), **content)
    )


def write(html: str, path: Path) -> Path:
    """Write a page whole or not at all; answers where it is."""
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            part.write_text(html, encoding="utf-8")
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise BadInput(
            f'Cannot write the report "{path}" ({error.strerror}); choose a folder that you may write to, '
            "with some megabytes free."
        ) from error
    return path


@cache
def plotly() -> str:
    """Plotly's own offline bundle, as the installed package brings it."""
    from plotly.offline import get_plotlyjs

    # A closing tag inside a string of the bundle would end the script.
    return str(get_plotlyjs()).replace("</script", "<\\/script")


def data(values: Mapping[str, Any] | Sequence[Any]) -> str:
    """JSON that can stand inside a script element: no character of it can end the element.

    >>> data({"name": "</script>"})
    '{"name": "\\\\u003c/script\\\\u003e"}'
    """
    text = json.dumps(values, allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _policy(scripts: Sequence[str]) -> str:
    """Nothing may be loaded, and only these very scripts may run."""
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    sources = " ".join(f"'sha256-{digest}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {sources}; style-src 'unsafe-inline'; img-src data: blob:; "
        "font-src data:; base-uri 'none'; form-action 'none'"
    )


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "amount": lambda number, measure: words.amount(measure, number),
        "label": words.label,
        "value": words.value,
        "share": words.share,
        "times": words.times,
        "data": lambda values: Markup(data(values)),
        "ours": Markup,
    }
    return environment


@cache
def _read(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")
