"""The surrogates answer as they did when `recorded.json` was written (see `recorded.py`)."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest


def _recorded() -> Any:
    path = Path(__file__).with_name("recorded.py")
    spec = importlib.util.spec_from_file_location("surrogates_recorded", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


recorded = _recorded()
KEPT = json.loads(recorded.FILE.read_text())


@pytest.mark.parametrize("name", recorded.CASES)
def test_answers_are_those_recorded(name: str) -> None:
    found = recorded.CASES[name]()
    assert set(found) == set(KEPT[name])
    for key, value in found.items():
        np.testing.assert_allclose(value, np.array(KEPT[name][key]), rtol=1e-6, atol=1e-12, err_msg=key)
