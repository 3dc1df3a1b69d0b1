"""The page in a real browser: Chromium, driven by Playwright."""

import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from tests.browser import open_browser, quiet_page
from tests.processes import accept_interrupts

pytestmark = pytest.mark.slow


def free_port():
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        return trial.getsockname()[1]


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """`geosoftmax play` as a user starts it, and ends it by Ctrl-C: it leaves no files behind."""
    port, temporary = free_port(), tmp_path_factory.mktemp("temporary")
    command = [sys.executable, "-m", "geosoftmax_experiments", "play", "--no-browser", "--port"]
    server = subprocess.Popen(
        [*command, str(port)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=accept_interrupts,
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    try:
        wait_for(port, server)
        yield f"http://127.0.0.1:{port}/"
    finally:
        server.send_signal(signal.SIGINT)
        printed, _ = server.communicate(timeout=20)
    assert f"http://127.0.0.1:{port}" in printed
    assert "Traceback" not in printed
    assert list(temporary.rglob("*")) == []


def wait_for(port, server):
    for _ in range(600):
        with socket.socket() as trial:
            if trial.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert server.poll() is None, server.communicate()[0]
        time.sleep(0.1)
    pytest.fail("the page did not open within a minute")


@pytest.fixture(scope="module")
def browser():
    with open_browser() as browser:
        yield browser


@pytest.fixture
def page(browser, address):
    with quiet_page(browser, address, viewport={"width": 1100, "height": 1000}) as page:
        page.goto(address)
        page.wait_for_selector("#bracket")
        yield page


def changes(page, tab, act):
    """Do something; wait until the answer of a tab is another one."""
    answer = f"{tab} .g-answer"
    before = page.inner_text(answer)
    act()
    page.wait_for_function(
        "([s, t]) => document.querySelector(s) && document.querySelector(s).innerText !== t",
        arg=[answer, before],
        polling=10,
    )


def press(page, selector, key):
    page.locator(selector).focus()
    page.keyboard.press(key)


LISTENING = """
import socket, sys, time

def refuse(found):
    print("ASKED", found, flush=True)
    raise OSError("no network")

resolve, connect = socket.getaddrinfo, socket.socket.connect
ours = lambda host: str(host) in ("127.0.0.1", "localhost", "None", "0.0.0.0")
socket.getaddrinfo = lambda host, *a, **k: resolve(host, *a, **k) if ours(host) else refuse(host)
socket.socket.connect = (
    lambda self, to: connect(self, to) if isinstance(to, str) or ours(to[0]) else refuse(to)
)
from geosoftmax_experiments.play.serve import open_page
server, address = open_page(int(sys.argv[1]))
time.sleep(4)
server.shutdown()
print("served", address)
"""


def test_the_server_asks_nobody():
    """Neither names nor addresses of other machines are looked up or connected to."""
    command = [sys.executable, "-c", LISTENING, str(free_port())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert "served http://127.0.0.1" in done.stdout, done.stderr
    assert "ASKED" not in done.stdout


def test_drawing_and_sliders_change_the_numbers(page):
    def stroke():
        box = page.locator("#sheet canvas").bounding_box()
        page.mouse.move(box["x"] + 30, box["y"] + 30)
        page.mouse.down()
        page.mouse.move(box["x"] + 220, box["y"] + 40, steps=4)
        page.mouse.up()

    changes(page, "#fields", stroke)
    assert 'data-row="sparsemax, p = 2"' in page.inner_html("#fields")
    changes(page, "#fields", lambda: press(page, "#fields-noise input[type=range]", "ArrowRight"))
    changes(page, "#fields", lambda: press(page, "#fields-scale input[type=range]", "ArrowRight"))


def test_keys_draw_and_digits_are_picked(page):
    changes(page, "#fields", lambda: page.get_by_role("button", name="Clear").click())
    assert "The sheet is empty" in page.inner_text("#fields")
    page.locator("#sheet canvas").focus()
    changes(page, "#fields", lambda: page.keyboard.press("Space"))
    first = page.inner_text("#bracket")
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    changes(page, "#fields", lambda: page.keyboard.press("Space"))
    assert page.inner_text("#bracket") != first


def test_ordered_classes_by_keyboard(page):
    page.get_by_role("tab", name="Ordered classes").click()
    page.wait_for_selector("#certificate")
    assert page.locator("#scores label:visible").count() == 6
    slider = "#scores label:nth-child(2) input"
    changes(page, "#ordinal", lambda: press(page, slider, "ArrowRight"))
    classes = "#ordinal-classes input[type=range]"
    changes(page, "#ordinal", lambda: press(page, classes, "ArrowRight"))
    page.wait_for_function("document.querySelectorAll('#ordinal svg .g-name').length === 7")
    page.locator("#scores label:nth-child(7)").wait_for(state="visible")


def test_the_true_class_is_one_of_the_classes(page):
    page.get_by_role("tab", name="Ordered classes").click()
    page.wait_for_selector("#certificate")
    true = page.locator("#ordinal-true input[type=range]")
    changes(page, "#ordinal", lambda: press(page, "#ordinal-true input[type=range]", "End"))
    assert true.input_value() == "6"
    changes(page, "#ordinal", lambda: press(page, "#ordinal-classes input[type=range]", "Home"))
    assert true.input_value() == "3"
    assert "must be" not in page.inner_text("#ordinal")


def test_three_classes(page):
    page.get_by_role("tab", name="Three classes").click()
    page.wait_for_selector("#level")
    slider = "#simplex-score-2 input[type=range]"
    changes(page, "#simplex", lambda: press(page, slider, "ArrowRight"))
    assert page.locator("#simplex svg").count() == 2


def test_key_points(page):
    page.get_by_role("tab", name="Key points").click()
    page.wait_for_selector("#keypoints table")
    changes(page, "#keypoints", lambda: page.get_by_text("p = 2, squared distance").last.click())
    slider = "#keypoints-row input[type=range]"
    changes(page, "#keypoints", lambda: press(page, slider, "ArrowRight"))


def test_what_is_typed_is_moved_into_the_range(page):
    box = page.locator("#fields-scale input[type=number]")
    for text, value in (("1e99", "4"), ("-3", "0.25"), ("", "0.25"), ("0.5", "0.5")):
        box.fill(text)
        box.press("Enter")
        assert box.input_value() == value
        assert page.locator("#fields-scale input[type=range]").input_value() == value
    assert "must be" not in page.inner_text("#fields")


def test_tabs_by_keyboard(page):
    page.get_by_role("tab", name="Drawings").focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#keypoints table")
    assert page.locator("#fields").is_hidden()


#: Pairs of labels of charts of which one covers the other.
OVERLAPPING = """selector => {
    const boxes = [...document.querySelectorAll(selector)].map(
        e => [e.textContent, e.getBoundingClientRect()]);
    return boxes.flatMap(([one, a], k) => boxes.slice(k + 1).filter(([_, b]) =>
        Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 &&
        Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3
    ).map(([other]) => `${one} and ${other}`));
}"""


@pytest.mark.parametrize("size", [(390, 844), (1280, 800)], ids=["phone", "desk"])
def test_every_tab_fits_the_screen(browser, address, size):
    """All tabs are reached, nothing is wider than the screen, and no label covers another."""
    width, height = size
    with quiet_page(browser, address, viewport={"width": width, "height": height}) as page:
        page.goto(address)
        page.wait_for_selector("#bracket")
        for tab in page.get_by_role("tab").all():
            box = tab.bounding_box()
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= width
            tab.click()
            section = f"#{tab.get_attribute('aria-controls')}"
            page.wait_for_selector(f"{section} .g-answer")
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            clipped = """selector => [...document.querySelectorAll(selector)].filter(e =>
                e.getBoundingClientRect().right > innerWidth || e.scrollWidth > e.clientWidth + 1
            ).map(e => e.outerHTML.slice(0, 80))"""
            assert page.evaluate(clipped, f"{section} :is(table, td, svg, img, input)") == []
            assert page.evaluate(OVERLAPPING, f"{section} svg text") == []


def test_phone_draws_by_touch(browser, address):
    size = {"width": 390, "height": 844}
    with quiet_page(browser, address, viewport=size, has_touch=True) as page:
        page.goto(address)
        page.wait_for_selector("#bracket")
        sheet = page.locator("#sheet canvas")
        assert sheet.bounding_box()["width"] <= 390
        # A tap of the sheet waits until it has stopped to move, as people do.
        changes(page, "#fields", lambda: sheet.tap(position={"x": 20, "y": 20}))
