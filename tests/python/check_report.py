#!/usr/bin/env python3
"""The page of `lockstep report` in a real browser. Usage: check_report.py PAGE PICTURES NAME WORKERS

Leaves PICTURES/NAME_light.png and others. WORKERS: how many have bars."""
import os
import shutil
import sys
import tempfile

from browser import Browser


def require(holds, what):
    if not holds:
        raise SystemExit(f"check_report: {what}")


LONGEST_PATH = "Math.max(...[...document.querySelectorAll('svg.chart .curve path')].map(p => p.getAttribute('d').split(/[ML]/).length - 1))"
SHORTEST_PATH = LONGEST_PATH.replace("max", "min")
WIDTHS = "[document.documentElement.scrollWidth, innerWidth]"
SMALLEST_TEXT = ("Math.min(...[...document.querySelectorAll('svg.chart text')].map("
                 "t => 11.5 * t.ownerSVGElement.getBoundingClientRect().width / 400))")
CONTRASTS = """(() => {
  const luma = text => { const c = text.match(/[0-9.]+/g).slice(0, 3).map(v => { v /= 255; return v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; });
    return .2126 * c[0] + .7152 * c[1] + .0722 * c[2]; };
  const ratio = (a, b) => (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
  const ground = luma(getComputedStyle(document.querySelector('figure')).backgroundColor);
  return [...document.querySelectorAll('svg.chart .curve')].map(c => ratio(luma(getComputedStyle(c).color), ground))
    .concat([ratio(luma(getComputedStyle(document.querySelector('.grid text')).fill), ground)]);
})()"""


def check_hover(browser):
    box = browser.evaluate("(() => { const b = document.querySelector('svg.chart').getBoundingClientRect();"
                           " return [b.left, b.top, b.width, b.height]; })()")
    browser.point_at(box[0] + box[2] * 0.6, box[1] + box[3] * 0.5)
    text = browser.evaluate("document.querySelector('.plot .tip:not([hidden])')?.textContent ?? ''")
    curves = browser.evaluate("JSON.parse(document.getElementById('data').textContent)[0].curves.map(curve => curve.label)")
    require(any(label in text for label in curves) and any(c.isdigit() for c in text), f"the pointer shows '{text}'")
    require(browser.evaluate("document.querySelectorAll('.guide.on').length") == 1, "no line at the pointer")


def main():
    page, pictures, title, workers = os.path.abspath(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    require(program is not None, "there is no Chromium here (apt-get install chromium)")
    os.makedirs(pictures, exist_ok=True)
    with tempfile.TemporaryDirectory() as profile, Browser(program, profile) as browser:
        for name, view in {"light": (1280, 900), "dark": (1280, 900, True), "phone": (390, 844, False, True)}.items():
            browser.view(*view)
            browser.open("file://" + page)
            charts = browser.evaluate("document.querySelectorAll('svg.chart').length")
            require(charts >= 2, f"{charts} charts")
            require(browser.evaluate(SHORTEST_PATH) >= 2, "a curve without points")
            bars = browser.evaluate("document.querySelectorAll('.bar').length")
            require(bars == workers, f"{bars} bars of workers")
            width, room = browser.evaluate(WIDTHS)
            require(width <= room, f"{name}: the page is {width} wide, the window {room}")
            require(browser.evaluate(SMALLEST_TEXT) >= 9, f"{name}: text of {browser.evaluate(SMALLEST_TEXT)} pixels")
            contrasts = browser.evaluate(CONTRASTS)
            require(min(contrasts) >= 3 and contrasts[-1] >= 4.5, f"{name}: contrasts {contrasts}")
            if name != "phone":
                check_hover(browser)
            browser.screenshot(os.path.join(pictures, f"{title}_{name}.png"))
            require(not browser.problems(), f"{name}: {browser.problems()}")
        longest = browser.evaluate(LONGEST_PATH)
    print(f"check_report: {charts} charts, up to {longest} points a curve, no errors; pictures in {pictures}")


if __name__ == "__main__":
    main()
