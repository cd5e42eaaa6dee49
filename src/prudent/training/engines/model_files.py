"""Which programs made a model."""

from __future__ import annotations

import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version

_ALWAYS = ("prudent", "numpy", "scipy", "onnx", "onnxruntime")


@cache
def versions(library: str | None = None) -> dict[str, str]:
    """Versions of what takes part in training, with the library that fits the model where there is one."""
    found = {"python": platform.python_version()}
    for name in (*_ALWAYS, *([library] if library else [])):
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # run from a folder, not installed
            found[name] = "unknown"
    return found
