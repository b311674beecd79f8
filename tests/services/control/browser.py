"""A headless Chromium, driven over the DevTools protocol: enough of it to use the page as a person does."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from websockets.sync.client import connect

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--no-first-run", "--disable-sync", "--disable-extensions", "--mute-audio", "--disable-dev-shm-usage",
    "--remote-debugging-port=0",
)  # fmt: skip


class Browser:
    """One process with one page. Errors of the page's scripts are in `errors`."""

    def __init__(self, profile: Path, *, timeout_s: float = 60.0) -> None:
        self._timeout_s = timeout_s
        profile.mkdir(parents=True, exist_ok=True)
        self._log = open(profile / "log.txt", "w+")  # noqa: SIM115  closed with the browser
        self.process = subprocess.Popen(
            [CHROMIUM, *_FLAGS, f"--user-data-dir={profile}", "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._log,
            start_new_session=True,
        )
        self.errors: list[str] = []
        self._number = 0
        self._socket = connect(self._endpoint(), max_size=1 << 26, open_timeout=timeout_s)
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = None
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._call(f"{domain}.enable")

    def open(self, url: str, width: int = 1280, height: int = 900, *, dark: bool = False, phone: bool = False) -> None:
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])
        self._call("Page.navigate", url=url)
        self.wait_for("document.readyState === 'complete'")

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression; promises are waited for."""
        reply = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in reply:
            raise AssertionError(f"{expression}: {reply['exceptionDetails']}")
        return reply["result"].get("value")

    def wait_for(self, expression: str, timeout_s: float | None = None) -> Any:
        """Until the expression is true."""
        end = time.monotonic() + (timeout_s or self._timeout_s)
        while time.monotonic() < end:
            if value := self.evaluate(f"!!({expression})"):
                return value
            time.sleep(0.1)
        raise AssertionError(f"never true: {expression}\npage: {self.evaluate('document.body.innerText')[:3000]}")

    def text(self, selector: str) -> str:
        return self.evaluate(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")

    def click(self, selector: str) -> None:
        """A click of the mouse in the middle of the element, which must be what is there."""
        find = f"document.querySelector({json.dumps(selector)})"
        self.wait_for(f"!!{find} && !{find}.hidden && !{find}.disabled")
        self.evaluate(f"{find}.scrollIntoView({{block: 'center'}})")
        box = self.evaluate(
            f"(({{x, y, width, height}}) => [x + width / 2, y + height / 2])({find}.getBoundingClientRect())"
        )
        hit = f"{find}.contains(document.elementFromPoint({box[0]}, {box[1]}))"
        assert self.evaluate(hit), f"{selector} is covered by something else"
        for kind in ("mousePressed", "mouseReleased"):
            self._call("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)

    def type(self, selector: str, text: str) -> None:
        self.evaluate(f"document.querySelector({json.dumps(selector)}).focus()")
        self._call("Input.insertText", text=text)

    def press(self, key: str, code: int) -> None:
        for kind in ("keyDown", "keyUp"):
            more = {"text": "\r"} if key == "Enter" and kind == "keyDown" else {}
            self._call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **more)

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(self._call("Page.captureScreenshot", captureBeyondViewport=whole)["data"]))

    def close(self) -> None:
        self._socket.close()
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._log.close()

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _endpoint(self) -> str:
        end = time.monotonic() + self._timeout_s
        while time.monotonic() < end:
            self._log.seek(0)
            found = re.search(r"DevTools listening on (ws://\S+)", self._log.read())
            if found:
                return found[1]
            time.sleep(0.1)
        raise AssertionError("Chromium did not start")

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if getattr(self, "_session", None):
            message["sessionId"] = self._session
        self._socket.send(json.dumps(message))
        while True:
            reply = json.loads(self._socket.recv(timeout=self._timeout_s))
            if reply.get("id") == self._number:
                assert "error" not in reply, f"{method}: {reply['error']}"
                return reply["result"]
            self._note(reply)

    def _note(self, event: dict[str, Any]) -> None:
        if event.get("method") == "Runtime.exceptionThrown":
            self.errors.append(str(event["params"]["exceptionDetails"]))
        if event.get("method") == "Log.entryAdded" and event["params"]["entry"]["level"] == "error":
            self.errors.append(f"{event['params']['entry']['text']} {event['params']['entry'].get('url', '')}")
