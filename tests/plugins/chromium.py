"""A real headless Chromium, driven over pipes by its DevTools protocol: no driver, no web socket, no port."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ("--headless", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--remote-debugging-pipe")


class Tab:
    """One page; `errors` and `requests` are what it logged and asked for so far."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._write, self._read = to_browser, os.fdopen(from_browser, "rb")
        self._numbers, self._rest, self._session = count(1), b"", {}
        self.errors: list[str] = []
        self.requests: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._session = {"sessionId": session}
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send one command, and read what comes until its answer."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters, **self._session}
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != number:
            self._note(answer)
        assert "error" not in answer, answer
        return answer["result"]

    def open(self, path: Path) -> None:
        """Load a file, whole."""
        self.call("Page.navigate", url=path.resolve().as_uri())
        while (event := self._next()).get("method") != "Page.loadEventFired":
            self._note(event)

    def ask(self, expression: str) -> Any:
        """The value of an expression of JavaScript in the page."""
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def close(self) -> None:
        """End the browser."""
        self._session = {}
        self.call("Browser.close")
        self._read.close()

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            chunk = self._read.read1(1 << 16)
            assert chunk, "Chromium ended"
            self._rest += chunk
        text, self._rest = self._rest.split(b"\0", 1)
        return json.loads(text)

    def _note(self, event: dict[str, Any]) -> None:
        match event.get("method"):
            case "Runtime.exceptionThrown" | "Log.entryAdded" | "Runtime.consoleAPICalled":
                self.errors.append(json.dumps(event["params"]))
            case "Network.requestWillBeSent":
                self.requests.append(event["params"]["request"]["url"])


@contextmanager
def chromium(profile: Path) -> Iterator[Tab]:
    """A tab of a browser of its own, which ends with the block."""
    commands, to_browser = os.pipe()  # the browser reads 3 and writes 4
    from_browser, answers = os.pipe()
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []  # root has none
    words = [str(PROGRAM), *FLAGS, *sandbox, f"--user-data-dir={profile}", "about:blank"]
    redirected = f'exec "$@" 3<&{commands} 4>&{answers}'
    browser = subprocess.Popen(
        ["bash", "-c", redirected, "bash", *words], pass_fds=(commands, answers), stderr=subprocess.DEVNULL
    )
    os.close(commands)
    os.close(answers)
    try:
        tab = Tab(to_browser, from_browser)
        yield tab
        tab.close()
    finally:
        os.close(to_browser)
        try:
            browser.wait(30)
        except subprocess.TimeoutExpired:
            browser.kill()
            browser.wait()


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    if PROGRAM is None:
        pytest.skip("no Chromium is installed: apt-get install chromium")
    with chromium(tmp_path_factory.mktemp("chromium")) as opened:
        yield opened
