"""Places to die at: nothing in production, a real SIGKILL where a test asks for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from prudent.core.processes import KILL_AT

CODE = """
from prudent.core.processes import kill_point
for name in "abcabc":
    kill_point(name)
    print(name, end="", flush=True)
"""


@pytest.mark.parametrize(
    ("at", "passed", "code"),
    [
        ("", "abcabc", 0),
        ("d", "abcabc", 0),
        ("a", "", -signal.SIGKILL),
        ("c", "ab", -signal.SIGKILL),
        ("b>a", "abc", -signal.SIGKILL),
        ("b>b", "abca", -signal.SIGKILL),
        ("b:2", "abca", -signal.SIGKILL),
        ("c>a:2", "abcabc", 0),
        ("c>a>c>a", "abcabc", 0),
    ],
)
def test_it_dies_there_and_only_there(at: str, passed: str, code: int) -> None:
    environment = {**os.environ, KILL_AT: at}
    done = subprocess.run([sys.executable, "-c", CODE], env=environment, capture_output=True, check=False)
    assert (done.stdout.decode(), done.returncode) == (passed, code)
