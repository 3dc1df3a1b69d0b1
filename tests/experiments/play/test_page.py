"""The page in a real browser: Chromium, driven by Playwright."""

import http.client
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
    pytest.importorskip("gradio", reason="gradio is not installed: pip install .[play]")
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


def test_it_is_served_to_this_machine_alone(address):
    assert address.startswith("http://127.0.0.1:")
    port = int(address.rsplit(":", 1)[1].strip("/"))
    with socket.socket() as other:  # another address of this machine
        other.settimeout(2)
        assert other.connect_ex(("127.0.0.2", port)) != 0


def ask(address, method, path, body=None, **headers):
    """Return the status of an answer, without a browser."""
    host = address.removeprefix("http://").strip("/")
    connection = http.client.HTTPConnection(host, timeout=20)
    found = {"Host": host, **{key.title(): value for key, value in headers.items()}}
    try:
        connection.request(method, path, body, found)
        return connection.getresponse().status
    except (BrokenPipeError, ConnectionResetError):
        return "closed"
    finally:
        connection.close()


def test_other_sites_get_nothing(address):
    """Neither an upload nor an answer: as a page elsewhere would ask, in a visitor's browser."""
    run, upload = "/gradio_api/run/predict", "/gradio_api/upload"
    assert ask(address, "GET", "/") == 200
    assert ask(address, "GET", "/", host="there.example") == 421
    form = (
        b'--x\r\nContent-Disposition: form-data; name="files"; filename="a"\r\n\r\n'
        + bytes(10_000)
        + b"\r\n--x--\r\n"
    )
    kind = {"content-type": "multipart/form-data; boundary=x"}
    assert ask(address, "POST", upload, form, **kind) == 404
    assert ask(address, "POST", upload, form, **kind, origin="https://there.example") == 403
    assert ask(address, "POST", run, b"{}", origin="https://there.example") == 403
    assert ask(address, "POST", run, bytes(10_000_000)) in (413, "closed")
    assert ask(address, "GET", "/gradio_api/file=/etc/hostname") == 404
    assert ask(address, "GET", "/") == 200


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
page, address = open_page(int(sys.argv[1]))
time.sleep(4)
page.close(verbose=False)
print("served", address)
"""


def test_the_server_asks_nobody():
    """Neither names nor addresses of other machines are looked up or connected to."""
    pytest.importorskip("gradio", reason="gradio is not installed: pip install .[play]")
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
    assert 'data-row="sparsemax"' in page.inner_html("#fields")
    changes(page, "#fields", lambda: press(page, "#noise input[type=range]", "ArrowRight"))
    changes(page, "#fields", lambda: press(page, "#scale input[type=range]", "ArrowRight"))


def test_keys_draw_and_digits_are_picked(page):
    changes(page, "#fields", lambda: page.get_by_role("button", name="Clear the sheet").click())
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
    changes(page, "#ordinal", lambda: press(page, "#classes input[type=range]", "ArrowRight"))
    page.wait_for_function("document.querySelectorAll('#ordinal svg text').length === 7")
    page.locator("#scores label:nth-child(7)").wait_for(state="visible")


def test_three_classes(page):
    page.get_by_role("tab", name="Three classes").click()
    page.wait_for_selector("#level")
    changes(page, "#simplex", lambda: press(page, "#score-2 input[type=range]", "ArrowRight"))
    assert page.locator("#simplex svg").count() == 2


def test_bad_values_are_answered_in_words(page):
    box = page.locator("#scale input[type=number]")
    answer = page.locator("#fields .g-answer")
    for text, words in (("1e99", "got 1e+99"), ("-3", "got -3"), ("", "got None")):
        box.fill(text)
        box.press("Enter")
        answer.get_by_text(words).wait_for()
        assert "scale must be a number from 0.25 to 4" in answer.inner_text()
    box.fill("0.5")
    box.press("Enter")
    answer.get_by_text("certified gap").wait_for()


def test_phone(browser, address):
    size = {"width": 390, "height": 844}
    with quiet_page(browser, address, viewport=size, has_touch=True) as page:
        page.goto(address)
        page.wait_for_selector("#bracket")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        sheet = page.locator("#sheet canvas")
        assert sheet.bounding_box()["width"] <= 390
        # A tap of the sheet waits until it has stopped to move, as people do.
        changes(page, "#fields", lambda: sheet.tap(position={"x": 20, "y": 20}))
