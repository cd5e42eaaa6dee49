"""A real Chromium for the tests of pages and reports, driven by its own protocol."""

from __future__ import annotations

import base64
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
    "--hide-scrollbars", "--remote-debugging-port=0", "--remote-allow-origins=*",
    "--force-prefers-reduced-motion",  # drawing what pulses, without a graphics card, keeps a core busy
)  # fmt: skip


class Chrome:
    """One page of a browser. What the page complains about is kept in `complaints`.

    A test says in `expected` which words of them it provokes: they come when the browser likes.
    """

    def __init__(self, folder: Path) -> None:
        program = (
            shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        )
        assert program is not None
        self.process = subprocess.Popen(
            [program, *_FLAGS, f"--user-data-dir={folder}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, "TMPDIR": str(folder)},  # what it leaves goes with its folder
            start_new_session=True,
        )
        self.complaints: list[str] = []
        self.expected: list[str] = []
        self._number = itertools.count(1)
        self._line = self._connect()
        for part in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{part}.enable")

    def _connect(self) -> Any:
        import websocket

        assert self.process.stderr is not None
        for text in self.process.stderr:
            found = re.search(rb"ws://[\d.]+:(\d+)/", text)
            if found:
                break
        else:
            raise RuntimeError("Chromium did not start")
        with urllib.request.urlopen(f"http://127.0.0.1:{int(found[1])}/json", timeout=30) as answer:
            places = json.load(answer)
        place = next(each["webSocketDebuggerUrl"] for each in places if each["type"] == "page")
        return websocket.create_connection(place, timeout=240)

    def ask(self, method: str, **values: Any) -> Any:
        """One command of the protocol, and its answer."""
        number = next(self._number)
        self._line.send(json.dumps({"id": number, "method": method, "params": values}))
        while True:
            said = json.loads(self._line.recv())
            if said.get("id") == number:
                if "error" in said:
                    raise RuntimeError(f"{method}: {said['error']['message']}")
                return said["result"]
            self._heard(said)

    def _heard(self, said: Any) -> None:
        values = said.get("params", {})
        if said.get("method") == "Log.entryAdded" and values["entry"]["level"] == "error":
            self.complaints.append(f"{values['entry']['text']} ({values['entry'].get('url', '')})")
        if said.get("method") == "Runtime.consoleAPICalled" and values["type"] == "error":
            self.complaints.append(json.dumps(values["args"])[:500])
        if said.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(values["exceptionDetails"].get("exception", {}))[:500])

    def unexpected(self) -> list[str]:
        """What the page complained about, and nobody provoked."""
        return [said for said in self.complaints if not any(words in said for words in self.expected)]

    def size(self, width: int, height: int = 900, dark: bool = False) -> None:
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 500,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, url: str) -> None:
        self.run("window.isLeft = true")  # the page that is left is complete, too
        self.ask("Page.navigate", url=url)
        self.until("document.readyState === 'complete' && !window.isLeft")

    def run(self, script: str) -> Any:
        """The value of an expression in the page; a promise is waited for."""
        found = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(
                f"{script}: {found['exceptionDetails'].get('exception', {}).get('description')}"
            )
        return found["result"].get("value")

    def leave(self) -> None:
        """Be on no page, so that none goes on asking a service that ends."""
        self.ask("Page.navigate", url="about:blank")
        self.until("location.href === 'about:blank' && document.readyState === 'complete'")

    def until(self, script: str, wait_s: float = 240.0) -> Any:
        """Wait until an expression is true."""
        until_s = time.monotonic() + wait_s
        while True:
            try:
                value = self.run(script)
            except RuntimeError:  # the page is being left
                value = None
            if value:
                return value
            if time.monotonic() > until_s:
                text = self.run("document.body.innerText")
                raise AssertionError(f"Never true: {script}\n{text[:3000]}")
            time.sleep(0.03)

    def fill(self, selector: str, value: str) -> None:
        """Type into a field, as a person would."""
        self.run(f"document.querySelector({selector!r}).focus()")
        self.run(f"document.querySelector({selector!r}).select?.()")
        self.ask("Input.insertText", text=value)

    def choose(self, selector: str, value: str) -> None:
        there = f"document.querySelector({selector!r})"
        self.run(f"{there}.value = {value!r}; {there}.dispatchEvent(new Event('change', {{bubbles: true}}))")

    def click(self, selector: str) -> None:
        """A real click, in the middle of an element that can be seen."""
        there = f"document.querySelector({selector!r})"
        self.until(f"!!{there}")
        self.run(f"{there}.scrollIntoView({{block: 'center'}})")
        middle = "b => [b.x + b.width / 2, b.y + b.height / 2]"
        box = self.run(f"({middle})({there}.getBoundingClientRect())")
        for kind in ("mousePressed", "mouseReleased"):
            self.ask("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)

    def text(self, selector: str = "body") -> str:
        self.until(f"!!document.querySelector({selector!r})")  # the page may be on its way
        return str(self.run(f"document.querySelector({selector!r}).innerText"))

    def picture(self, path: Path, whole: bool = True) -> None:
        found = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))

    def close(self) -> None:
        self._line.close()
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        assert self.process.stderr is not None
        self.process.stderr.read()  # until its other processes, which write into its folder, have ended
        self.process.stderr.close()


@pytest.fixture(scope="session")
def chrome() -> Iterator[Chrome]:
    if not any(shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome")):
        pytest.skip("needs Chromium")
    pytest.importorskip("websocket", reason="needs Chromium")
    with tempfile.TemporaryDirectory(prefix="prudent-chrome-") as folder:
        browser = Chrome(Path(folder))
        try:
            yield browser
        finally:
            browser.close()
