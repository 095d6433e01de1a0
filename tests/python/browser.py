"""A headless Chromium, led through its debugging pipe: nothing but Python's own library is needed."""
import base64
import json
import os
import subprocess
import time


class Browser:
    """Use with `with`. Descriptors 3 and 4 of the browser are its ears and its mouth; messages end with a zero byte."""

    def __init__(self, program, profile):
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()
        self._started = [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage",
                         "--hide-scrollbars", "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"]

        def give_pipes():
            # Copies first: one of the two may be 3 or 4 itself.
            ears, mouth = os.dup(to_browser), os.dup(from_browser)
            os.dup2(ears, 3)
            os.dup2(mouth, 4)
            os.set_inheritable(3, True)
            os.set_inheritable(4, True)

        self._process = subprocess.Popen(self._started, preexec_fn=give_pipes, close_fds=False, stdout=subprocess.DEVNULL,
                                         stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        os.set_blocking(self._in, False)
        self._number = 0
        self._buffer = b""
        self._session = None
        self.events = []

    def __enter__(self):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_):
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
        os.close(self._out)
        os.close(self._in)

    def _receive(self, deadline):
        while b"\0" not in self._buffer:
            try:
                piece = os.read(self._in, 1 << 16)
            except BlockingIOError:
                piece = None
            if piece == b"" or time.monotonic() > deadline:
                raise SystemExit("browser: no answer from Chromium")
            if piece is None:
                time.sleep(0.005)
            else:
                self._buffer += piece
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **arguments):
        self._number += 1
        message = {"id": self._number, "method": method, "params": arguments}
        if self._session and not method.startswith("Target."):
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + 60
        while True:
            answer = self._receive(deadline)
            if answer.get("id") != self._number:
                self.events.append(answer)
                continue
            if "error" in answer:
                raise SystemExit(f"browser: {method}: {answer['error']}")
            return answer["result"]

    def open(self, url):
        self.events.clear()
        self.call("Page.navigate", url=url)
        deadline = time.monotonic() + 60
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._receive(deadline))

    def evaluate(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in result:
            raise SystemExit(f"browser: {expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def view(self, width, height, is_dark=False, is_phone=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2 if is_phone else 1,
                  mobile=is_phone)
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}])

    def point_at(self, x, y):
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def screenshot(self, path, whole_page=True):
        picture = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole_page)
        with open(path, "wb") as file:
            file.write(base64.b64decode(picture["data"]))

    def problems(self):
        """Script errors, and whatever the page tried to fetch."""
        found = []
        for event in self.events:
            method, arguments = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                found.append(arguments["exceptionDetails"])
            elif method == "Log.entryAdded" and arguments["entry"]["level"] == "error":
                found.append(arguments["entry"]["text"])
            elif method == "Network.requestWillBeSent" and not arguments["request"]["url"].startswith(("file:", "data:")):
                found.append("asked the network for " + arguments["request"]["url"])
        return found
