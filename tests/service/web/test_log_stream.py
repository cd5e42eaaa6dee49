"""Logs: every line is a JSON object, whoever writes it."""

from __future__ import annotations

import json
import subprocess
import sys

SCRIPT = """
import logging, os, subprocess, sys, threading, warnings
from dbos._logger import init_logger
from prudent.service.web.log_stream import json_lines

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
subprocess.run(["sh", "-c", 'echo \\'{"of": "a child that logs"}\\' >&2; echo \\'{"half\\' >&2'])
sys.stderr.flush()
stack.__exit__(None, None, None)
print("plain again", file=sys.stderr, flush=True)
again = json_lines()
again.__enter__()
raise RuntimeError("nobody catches this; token=hush")
"""


def test_every_line_is_an_object() -> None:
    command = [sys.executable, "-W", "default", "-c", SCRIPT]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stderr.splitlines()
    said.remove("plain again")  # where it was restored
    lines = [json.loads(line) for line in said]
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
