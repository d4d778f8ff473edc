"""check_reports.py BINARY AXE OUT QUICK_START LARGE PLAN: reports in a browser. Each opens without a word on the console and
without a request, passes axe-core in light, in dark and on a telephone, zooms, filters and keeps its state in the address
through real events, is whole without its script, and shows hostile names as text. Pictures go to the folder OUT."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

from browser import Browser
from contract import fail

DESK, PHONE = (1280, 900), (390, 844)
SHIFT, CONTROL = 8, 2
HOSTILE = "</script><script>window.owned=1</script>\"'<img src=x onerror=window.owned=1>\u202etxt.exe"
LARGEST = 1_000_000  # bytes of a report

binary, axe, out, quick, large, plan = (Path(p).resolve() for p in sys.argv[1:7])
axe = axe.read_text(encoding="utf-8")


def check(truth, what):
    if not truth:
        fail(f"reports: {what}")


def quiet(page, what):
    found = page.complaints()
    check(not found, f"{what}: {found[:3]}")


def accessible(page, what):
    page.run(axe + ";0")
    got = page.run("axe.run(document, {resultTypes: ['violations']}).then(r => r.violations.map(v => [v.id, v.help, v.nodes.slice(0, 3).map(n => n.html.slice(0, 200))]))")
    check(not got, f"{what}: axe-core finds {json.dumps(got)[:1500]}")


def window(page):
    return page.run("[location.hash, document.getElementById('window').textContent]")


def look(browser, path, name):
    """In every guise: quiet, accessible, not wider than the screen."""
    check(path.stat().st_size < LARGEST, f"{path} has {path.stat().st_size} bytes")
    for guise, (size, phone, dark) in {"light": (DESK, False, False), "dark": (DESK, False, True), "phone": (PHONE, True, False), "phone-dark": (PHONE, True, True)}.items():
        page = browser.page()
        page.size(*size, phone, dark)
        page.open(path.as_uri())
        quiet(page, f"{name}, {guise}")
        check(page.run("document.documentElement.scrollWidth") <= size[0], f"{name}, {guise}: wider than the screen")
        fold = page.run("[...document.querySelectorAll('.verdict')].map(v => [v.querySelector('h3').textContent, v.getBoundingClientRect().top])")
        check(len(fold) == 4, f"{name}, {guise}: {fold} where four answers belong")
        check(phone or all(top < size[1] for _, top in fold), f"{name}, {guise}: answers below the fold: {fold}")
        page.picture(out / f"{name}-{guise}-top.png")
        page.picture(out / f"{name}-{guise}.png", whole=True)
        page.run("document.querySelectorAll('main details').forEach(d => d.open = true)")
        page.settle()
        accessible(page, f"{name}, {guise}, everything unfolded")
        quiet(page, f"{name}, {guise}, unfolded")
        page.close()


def use(browser, path, name):
    """As a reader would: with the mouse, with the keyboard, by address."""
    page = browser.page()
    page.size(*DESK)
    page.open(path.as_uri())
    page.run("document.getElementById('timeline').scrollIntoView()")
    page.settle()
    whole = "The whole step"
    check(window(page) == ["", whole], f"{name}: starts at {window(page)}")
    box = page.run("(b => [b.left, b.top, b.width, b.height])(document.querySelector('[data-lane] svg.lane').getBoundingClientRect())")
    left, top, width, height = box
    middle = top + height / 2

    page.mouse("mouseMoved", left + 2, middle)
    page.settle()
    tip = page.run("document.getElementById('tip').hidden ? '' : document.getElementById('tip').innerText")
    check("micro-batch" in tip and "predicted: " in tip, f"{name}: hovering shows `{tip}`")

    page.click(left + width / 2, middle, count=2)
    hash2, text = window(page)
    check("t=" in hash2 and text != whole, f"{name}: a double-click leaves {hash2}, {text}")
    page.drag(left + width / 2, middle, left + width / 4, middle)
    hash3, _ = window(page)
    check(hash3 != hash2, f"{name}: dragging moves nothing")
    page.drag(left + width / 4, middle, left + width / 2, middle, SHIFT)
    hash4, _ = window(page)
    span = lambda h: (lambda a, b: b - a)(*map(int, h.split("t=")[1].split("&")[0].split("-")))
    check(span(hash4) < 0.3 * span(hash3), f"{name}: Shift and drag go from {hash3} to {hash4}")
    page.mouse("mouseWheel", left + width / 2, middle, deltaX=0, deltaY=-200, modifiers=CONTROL)
    page.settle()
    check(span(window(page)[0]) < span(hash4), f"{name}: Ctrl and wheel do not zoom")

    page.run("document.getElementById('lanes').focus()")
    page.key("Home")
    check(window(page)[0] in ("", "#timeline") and window(page)[1] == whole, f"{name}: Home leaves {window(page)}")
    check(page.run("getComputedStyle(document.getElementById('lanes')).outlineStyle") == "solid", f"{name}: focus cannot be seen")
    for _ in range(3):
        page.key("+")
    zoomed = window(page)
    page.key("ArrowRight")
    moved = window(page)
    check("t=" in zoomed[0] and zoomed != moved and span(zoomed[0]) in range(span(moved[0]) - 2, span(moved[0]) + 3), f"{name}: keys go from {zoomed} to {moved}")
    page.key("-")
    check(span(window(page)[0]) > span(moved[0]), f"{name}: minus does not zoom out")
    page.key(".")
    page.key(".")
    check("micro-batch" in window(page)[1], f"{name}: `.` tells of no instruction: {window(page)[1]}")

    box = "document.querySelector('#controls input[value=backward]')"
    where = page.run(f"{box}.scrollIntoView({{block: 'center'}}), (b => [b.left + b.width / 2, b.top + b.height / 2])({box}.getBoundingClientRect())")
    page.click(*where)
    check("hide=backward" in window(page)[0], f"{name}: a filter leaves {window(page)[0]}")
    check(page.run("[...document.querySelectorAll('#lanes svg.lane path.backward')].length") == 0, f"{name}: backward is still drawn")
    # A page that draws one rank has none to choose from.
    choice = page.run("document.getElementById('pick-rank') !== null")
    if choice:
        page.run("(s => { s.value = s.options[s.options.length - 1].value; s.dispatchEvent(new Event('change', {bubbles: true})); })(document.getElementById('pick-rank'))")
        page.settle()
    link = page.run("location.href")
    shown = "[...document.querySelectorAll('[data-lane]')].filter(r => r.checkVisibility()).map(r => r.dataset.lane)"
    lanes = page.run(shown)
    check(lanes, f"{name}: {link} shows nothing")
    if choice:
        check("rank=" in link and all(l.split("-")[1] == link.split("rank=")[1].split("&")[0] for l in lanes), f"{name}: {link} shows {lanes}")
    state = window(page)
    quiet(page, f"{name}, used")
    page.picture(out / f"{name}-zoomed.png")
    page.close()

    again = browser.page()
    again.size(*DESK)
    again.open(link)
    again.settle()
    check(window(again)[0] == state[0] and again.run(shown) == lanes, f"{name}: {link} opens as {window(again)}, {again.run(shown)}")
    check(not again.run(f"{box}.checked"), f"{name}: the address does not filter")
    again.run("navigator.clipboard.writeText = t => { window.copied = t; return Promise.resolve(); }; 0")
    for what, holds in (("command", "meshwright"), ("pins", "tp="), ("twin", '"format": "meshwright-report"'), ("link", "#timeline?t=")):
        where = again.run(f"(b => (b.scrollIntoView({{block: 'center'}}), (r => [r.left + r.width / 2, r.top + r.height / 2])(b.getBoundingClientRect())))(document.querySelector('[data-copy={what}]'))")
        again.click(*where)
        check(holds in (again.run("window.copied") or ""), f"{name}: copying {what} gives {str(again.run('window.copied'))[:200]}")
    quiet(again, f"{name}, by address")
    again.close()


def without_script(browser, path, name):
    """Everything it says stands there without the script."""
    texts = []
    for disabled in (True, False):
        page = browser.page()
        page.size(*DESK)
        page.call("Emulation.setScriptExecutionDisabled", value=disabled)
        page.open(path.as_uri()) if not disabled else plain(page, path)
        if disabled:
            page.picture(out / f"{name}-no-script.png", whole=True)
        page.call("Emulation.setScriptExecutionDisabled", value=False)
        texts.append(page.run("[...document.querySelectorAll('main > section')].map(s => [s.id, s.querySelectorAll('svg.lane *').length > 0, s.querySelectorAll('tr').length])"))
        shown = page.run("[...document.querySelectorAll('[data-copy], #controls')].filter(b => b.checkVisibility()).length")
        check((shown == 0) == disabled, f"{name}: {shown} controls without a script: {disabled}")
        page.close()
    check(texts[0] == texts[1] and len(texts[0]) > 8, f"{name}: with and without the script differ: {texts}")


def plain(page, path):
    page.browser.events.clear()
    page.call("Page.navigate", url=path.as_uri())
    while not any(e["method"] == "Page.loadEventFired" for e in page.browser.events):
        page.browser.events.append(page.browser.message())


def hostile(browser):
    """Names from files are text, whatever they hold."""
    poisoned = json.loads(plan.read_text(encoding="utf-8"))
    poisoned["job"]["model"]["name"] = HOSTILE
    poisoned["why"] = [HOSTILE]
    source, report = out / "hostile.json", out / "hostile.html"
    source.write_text(json.dumps(poisoned), encoding="utf-8")
    subprocess.run([binary, "report", source, "-o", report, "-q"], check=True, capture_output=True, timeout=300)
    check("\u202e" not in report.read_text(encoding="utf-8"), "a name turns the text around")
    page = browser.page()
    page.size(*DESK)
    page.open(report.as_uri())
    quiet(page, "hostile names")
    check(page.run("window.owned === undefined && document.images.length === 0"), "a name ran as a script")
    check(page.run("document.querySelector('h1').textContent").startswith(HOSTILE[:40]), "a name is not shown as it is")
    check(page.run("JSON.parse(document.getElementById('twin').textContent).model") == HOSTILE, "the twin holds another name")
    page.close()


out.mkdir(parents=True, exist_ok=True)
browser = Browser(shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome"))
try:
    for path, name in ((quick, "quick-start"), (large, "llama3-70b")):
        look(browser, path, name)
        use(browser, path, name)
        without_script(browser, path, name)
        print(f"{name}: {path.stat().st_size} bytes, quiet, accessible, usable by mouse, keyboard and address, whole without script")
    hostile(browser)
    print("hostile names are text")
finally:
    browser.close()
