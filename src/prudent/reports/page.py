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
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prudent._version import __version__
from prudent.core.errors import BadInput
from prudent.reports import formatting
from prudent.reports.drawing import palette_css

if TYPE_CHECKING:
    from jinja2 import Environment

    from prudent.reports.figure import Figure

_TEMPLATES = Path(__file__).parent / "templates"


def render(template: str, figures: Sequence[Figure], **content: Any) -> str:
    """The whole page of a template that extends `page.html.j2`; `figures` are those it places.

    Without a figure Plotly is left out, and the page is a few kilobytes instead of five megabytes.
    """
    library = plotly() if figures else ""
    scripts = [_read("figures.js"), _read("page.js")] if figures else [_read("page.js")]
    policy = _policy([library, *scripts] if figures else scripts)
    content |= {"version": __version__, "style": palette_css() + _read("page.css"), "policy": policy}
    return _environment().get_template(template).render(plotly=library, scripts=scripts, **content)


_PLOTLY = '<script id="plotly"'


def without_plotly(page: str, address: str) -> str:
    """A page that loads Plotly from `address` on its own server: who keeps many reports keeps Plotly once."""
    before, found, rest = page.partition(f"{_PLOTLY}>")
    if not found:
        return page
    allowed = before.replace("script-src ", "script-src 'self' ", 1)
    return f'{allowed}{_PLOTLY} src="{address}">{rest[rest.index("</script>") :]}'


def with_plotly(page: str) -> str:
    """The page as one file again, which loads nothing."""
    before, found, rest = page.partition(f"{_PLOTLY} src=")
    if not found:
        return page
    # The bundle may be newer than the one that the page was made with.
    policy = f"script-src 'sha256-{_digest(plotly())}'"
    allowed = re.sub(r"script-src 'self' 'sha256-[^']+'", policy, before, count=1)
    return f"{allowed}{_PLOTLY}>{plotly()}{rest[rest.index('</script>') :]}"


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


def plotly_file() -> Path:
    """The bundle as a file, for a server."""
    from importlib.resources import files

    return Path(str(files("plotly"))) / "package_data" / "plotly.min.js"


def data(values: Mapping[str, Any] | Sequence[Any]) -> str:
    """JSON that can stand inside a script element: no character of it can end the element.

    >>> data({"name": "</script>"})
    '{"name": "\\\\u003c/script\\\\u003e"}'
    """
    text = json.dumps(values, allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _policy(scripts: Sequence[str]) -> str:
    """Nothing may be loaded, and only these very scripts may run."""
    sources = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    return (
        f"default-src 'none'; script-src {sources}; style-src 'unsafe-inline'; img-src data: blob:; "
        "font-src data:; base-uri 'none'; form-action 'none'"
    )


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


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
        "amount": lambda number, measure: formatting.amount(measure, number),
        "label": formatting.label,
        "value": formatting.value,
        "share": formatting.share,
        "times": formatting.times,
        "data": lambda values: Markup(data(values)),
        "ours": Markup,
    }
    return environment


@cache
def _read(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")
