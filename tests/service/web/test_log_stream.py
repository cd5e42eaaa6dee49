"""Logs: every line is a JSON object, whoever writes it."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys

SCRIPT = """
import logging, os, subprocess, sys, threading, warnings
from dbos._logger import init_logger
from prudent.service.logs import json_lines

def fail():
    raise ValueError("in a thread")

stack = json_lines()
stack.__enter__()
init_logger()
logging.getLogger("prudent.worker").info("ours")
logging.getLogger("uvicorn.error").error("uvicorn's")
logging.getLogger("dbos").warning("DBOS's")
warnings.warn("a warning", DeprecationWarning, stacklevel=1)
warnings.warn("another", UserWarning, stacklevel=1)
print("printed", file=sys.stderr)
os.write(2, b"of a library\\n\\nin C\\n")
thread = threading.Thread(target=fail)
thread.start()
thread.join()
subprocess.run([sys.executable, "-c", "raise SystemExit('of a child')"])
subprocess.run(["sh", "-c", 'echo \\'{"password": "hush", "url": "https://me:hush@host/x?sig=hush"}\\' >&2'])
subprocess.run(["sh", "-c", 'echo \\'{"measure": NaN}\\' >&2'])
subprocess.run(["sh", "-c", "echo nobody has prudent_" + 10 * "hush" + "abc >&2"])
subprocess.run(["sh", "-c", 'echo \\'{"of": "a child that logs"}\\' >&2; echo \\'{"half\\' >&2'])
sys.stderr.flush()
stack.__exit__(None, None, None)
print("plain again", file=sys.stderr, flush=True)
again = json_lines()
again.__enter__()
raise RuntimeError("nobody catches this; token=hush")
"""


LONG = """
import logging, os, sys, threading
from prudent.service import logs

def log():
    for number in range(20):
        logging.getLogger("prudent").info("%d %s", number, "a" * 30_000)

def write():
    for number in range(20):
        os.write(2, b"%d %s\\n" % (number, b"b" * 30_000))

os.set_blocking(2, False)
logs._LEAVE_S = 500
with logs.json_lines():
    both = [threading.Thread(target=each) for each in (log, write)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
"""


def _not_json(word: str) -> None:
    raise AssertionError(f"{word} is not JSON")


def test_long_lines_stay_whole_where_the_reader_is_slow() -> None:
    """A pipe of 4 kB, and lines of 30 kB by two at a time; standard error does not wait for it."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    with subprocess.Popen([sys.executable, "-c", LONG], stderr=writer), os.fdopen(reader) as log:
        os.close(writer)
        lines = [json.loads(line) for line in log]
    assert sorted(line["logger"] for line in lines) == ["prudent"] * 20 + ["stderr"] * 20


def test_every_line_is_an_object() -> None:
    command = [sys.executable, "-W", "default", "-c", SCRIPT]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stderr.splitlines()
    said.remove("plain again")  # where it was restored
    lines = [json.loads(line, parse_constant=_not_json) for line in said]
    text = json.dumps(lines)
    for words in (
        "ours", "uvicorn's", "DBOS's", "a warning", "another", "printed", "of a library", "in C",
        "in a thread", "of a child", "a child that logs", '{\\"half', "nobody catches this",
    ):  # fmt: skip
        assert words in text, words
    assert [line["logger"] for line in lines[:3]] == ["prudent.worker", "uvicorn.error", "dbos"]
    (uncaught,) = [line for line in lines if line.get("level") == "critical"]
    assert "RuntimeError" in uncaught["error"]
    assert "hush" not in text
    assert [line for line in lines if "Traceback" in line.get("message", "")] == []
