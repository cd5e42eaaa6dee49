"""Only files that hold an example are searched for examples.

Pytest would import every module and look at all that it defines, again in each process.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from _pytest.doctest import DoctestModule


class Doctests:
    """A plugin, not a hook of conftest: it must see the files of the package too."""

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_file(self, file_path: Path) -> Generator[None, Any, Any]:
        found = yield
        if file_path.suffix != ".py" or ">>> " in file_path.read_text():
            return found
        return [one for one in found if not isinstance(one, DoctestModule)]
