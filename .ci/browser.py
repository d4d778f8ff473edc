"""A headless Chromium, driven over its own pipe: the DevTools protocol as JSON messages that a zero byte ends. Keeps what
pages say on their console and what they ask the network for."""

import base64
import json
import os
import shlex
import shutil
import subprocess
import tempfile

WAIT = 60  # seconds for an answer
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --disable-dev-shm-usage --no-first-run --hide-scrollbars "
    "--disable-background-networking --disable-component-update --disable-sync --remote-debugging-pipe"
)


class Browser:
    def __init__(self, program):
        self.profile = tempfile.mkdtemp(prefix="meshwright-chromium.")
        read, self.write = os.pipe()
        self.read, write = os.pipe()
        # Chromium reads from descriptor 3 and writes to 4.
        command = f"exec {shlex.quote(program)} {FLAGS} --user-data-dir={shlex.quote(self.profile)} about:blank 3<&{read} 4>&{write}"
        self.process = subprocess.Popen(
            ["bash", "-c", command], pass_fds=(read, write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(read)
        os.close(write)
        os.set_blocking(self.read, False)
        self.buffer, self.next, self.events = b"", 0, []

    def close(self):
        try:
            self.call("Browser.close")
        except (RuntimeError, OSError):
            pass
        self.process.wait(WAIT)
        shutil.rmtree(self.profile, ignore_errors=True)

    def message(self):
        import select

        while b"\0" not in self.buffer:
            if not select.select([self.read], [], [], WAIT)[0]:
                raise RuntimeError("Chromium does not answer")
            got = os.read(self.read, 1 << 20)
            if not got:
                raise RuntimeError("Chromium has ended")
            self.buffer += got
        one, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(one)

    def call(self, method, session=None, **params):
        self.next += 1
        own = self.next
        sent = {"id": own, "method": method, "params": params}
        if session:
            sent["sessionId"] = session
        data = json.dumps(sent).encode() + b"\0"
        while data:
            data = data[os.write(self.write, data) :]
        while True:
            got = self.message()
            if got.get("id") == own:
                if "error" in got:
                    raise RuntimeError(f"{method}: {got['error']}")
                return got["result"]
            if "method" in got:
                self.events.append(got)

    def page(self):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        return Page(self, target, session)


class Page:
    def __init__(self, browser, target, session):
        self.browser, self.target, self.session = browser, target, session
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def close(self):
        self.browser.call("Target.closeTarget", targetId=self.target)

    def size(self, width, height, phone=False, dark=False, media=""):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        still = {"name": "prefers-reduced-motion", "value": "reduce"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[scheme, still])

    def open(self, url):
        self.browser.events.clear()
        self.call("Page.navigate", url=url)
        while not any(e["method"] == "Page.loadEventFired" for e in self.browser.events):
            self.browser.events.append(self.browser.message())
        self.settle()

    def settle(self):
        """Two frames later."""
        self.run("new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))")

    def run(self, script):
        got = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True, userGesture=True)
        if "exceptionDetails" in got:
            raise RuntimeError(f"{script[:200]}: {got['exceptionDetails']}")
        return got["result"].get("value")

    def complaints(self):
        """What the console, the log and uncaught errors hold, and every request but the page itself."""
        found = []
        for e in self.browser.events:
            p = e.get("params", {})
            if e["method"] in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
                found.append(f"{e['method']}: {json.dumps(p)[:600]}")
            if e["method"] == "Page.javascriptDialogOpening":
                found.append(f"a dialog: {p.get('message')}")
            if e["method"] == "Network.requestWillBeSent" and p.get("type") != "Document":
                found.append(f"a request: {p['request']['url'][:200]}")
        return found

    def key(self, key, modifiers=0):
        text = key if len(key) == 1 else ""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, text=text if kind == "keyDown" else "", modifiers=modifiers)
        self.settle()

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x, y, count=1):
        self.mouse("mouseMoved", x, y)
        for n in range(1, count + 1):
            self.mouse("mousePressed", x, y, button="left", clickCount=n)
            self.mouse("mouseReleased", x, y, button="left", clickCount=n)
        self.settle()

    def drag(self, x0, y0, x1, y1, modifiers=0):
        self.mouse("mouseMoved", x0, y0)
        self.mouse("mousePressed", x0, y0, button="left", clickCount=1, modifiers=modifiers)
        for k in range(1, 6):
            self.mouse("mouseMoved", x0 + (x1 - x0) * k / 5, y0 + (y1 - y0) * k / 5, button="left", buttons=1, modifiers=modifiers)
        self.mouse("mouseReleased", x1, y1, button="left", clickCount=1, modifiers=modifiers)
        self.settle()

    def picture(self, path, whole=False, clip=None):
        params = {"format": "png", "captureBeyondViewport": whole}
        if whole:
            box = self.call("Page.getLayoutMetrics")["cssContentSize"]
            clip = (0, 0, box["width"], min(box["height"], 16000))
        if clip:
            params["clip"] = dict(zip(("x", "y", "width", "height"), clip)) | {"scale": 1}
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("Page.captureScreenshot", **params)["data"]))
