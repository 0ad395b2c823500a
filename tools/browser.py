"""A headless Chromium driven through pipes by its DevTools protocol: nothing but the standard library."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
# Chromium reads commands from descriptor 3 and answers on 4; moved out of the way first, lest they overlap.
LAUNCH = (
    "import fcntl, os, sys\n"
    "ends = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3]]\n"
    "for k, end in enumerate(ends): os.dup2(end, 3 + k)\n"
    "os.execv(sys.argv[3], sys.argv[3:])\n"
)
OPTIONS = (
    *("--headless=new", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu", "--hide-scrollbars"),
    *("--disable-dev-shm-usage", "--disable-background-networking", "--disable-extensions", "--mute-audio"),
    *("--no-sandbox", "--force-color-profile=srgb", "--font-render-hinting=none"),
)
SECONDS = 60.0
STARTS = 3


def executable() -> str | None:
    """The browser, or None."""
    given = os.environ.get("RELFIT_BROWSER")
    return given or next((found for name in NAMES if (found := shutil.which(name))), None)


class NoBrowser(Exception):
    """The browser is installed, but it does not start on this machine."""


def start(path) -> Browser:
    """A browser that answers. On a busy machine the first start can fail, so it is tried three times."""
    for left in reversed(range(STARTS)):
        started = Browser(path)
        try:
            started.open_tab()
            return started
        except (TimeoutError, OSError) as error:
            said = started.said()
            started.close()
            if not left:
                raise NoBrowser(f"{path} does not start: {error}. It printed: {said}") from error
    raise AssertionError


class Browser:
    """One browser with one page. `events` are all messages that were no answers."""

    def __init__(self, path):
        self.folder = tempfile.TemporaryDirectory(prefix="relfit-browser-", ignore_cleanup_errors=True)
        self._errors = (Path(self.folder.name) / "said.txt").open("w+b")
        (read, self._out), (self._in, write) = os.pipe(), os.pipe()
        command = [sys.executable, "-c", LAUNCH, str(read), str(write), path, *OPTIONS]
        self.process = subprocess.Popen(
            [*command, f"--user-data-dir={self.folder.name}"],
            pass_fds=(read, write),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
        )
        os.close(read)
        os.close(write)
        self._numbers, self._rest, self._session, self.events = itertools.count(1), b"", None, []

    def open_tab(self):
        """The one page, with the events the tests look at."""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.ask(f"{domain}.enable")

    def said(self):
        """The end of what the browser printed."""
        self._errors.seek(0)
        return self._errors.read()[-500:].decode(errors="replace").strip() or "nothing"

    def ask(self, method, **parameters):
        """Send a command and wait for its answer."""
        number = self._send(method, **parameters)
        while True:
            answer = self._receive(SECONDS)
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def open(self, path, width=1600, height=900, dark=False):
        """Load a file at this window size and wait until it is there."""
        self.resize(width, height)
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.ask("Emulation.setEmulatedMedia", features=features)
        self.events.clear()
        self.ask("Page.navigate", url=Path(path).resolve().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._receive(SECONDS))

    def resize(self, width, height=900):
        """The size of the window in CSS pixels."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.ask("Emulation.setDeviceMetricsOverride", **size)

    def run(self, script):
        """The value of a JavaScript expression, promises awaited."""
        answer = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def picture(self, path, height=None):
        """A PNG of the whole page, or of its top."""
        size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": height or size["height"], "scale": 1}
        shot = self.ask("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        Path(path).write_bytes(base64.b64decode(shot["data"]))

    def pdf(self):
        """The page printed on A4, as the bytes of a PDF."""
        printed = self.ask("Page.printToPDF", paperWidth=8.27, paperHeight=11.69, preferCSSPageSize=False)
        return base64.b64decode(printed["data"])

    def close(self):
        """End the browser that was started here."""
        with contextlib.suppress(Exception):
            self._session = None
            self._send("Browser.close")
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._errors.close()
        os.close(self._out)
        os.close(self._in)
        self.folder.cleanup()

    def _send(self, method, **parameters):
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        return number

    def _receive(self, seconds):
        end = time.monotonic() + seconds
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._in], [], [], max(0.0, end - time.monotonic()))
            part = os.read(self._in, 1 << 16) if ready else b""
            if not part:
                raise TimeoutError("the browser does not answer")
            self._rest += part
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)
