"""What the server of the page refuses: names of other machines, other sites, long bodies."""

import http.client
import json
import socket

import pytest

from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.play import page
from geosoftmax_experiments.play.gate import ANSWER, MOST_BYTES, refusal
from geosoftmax_experiments.play.serve import open_page

OURS, ORIGIN = "127.0.0.1:7860", "http://127.0.0.1:7860"


@pytest.mark.parametrize(
    ("method", "path", "host", "origins"),
    [
        ("GET", "/", OURS, []),
        ("GET", "/", "localhost:9000", []),  # through a tunnel
        ("HEAD", "/", OURS, []),
        ("GET", "/page.js", OURS, [ORIGIN]),
        ("POST", ANSWER, OURS, [ORIGIN]),
        ("POST", ANSWER, OURS, []),  # not by a browser
        ("POST", ANSWER, "LOCALHOST:1", ["http://localhost:1"]),
    ],
)
def test_the_page_is_answered(method, path, host, origins):
    assert refusal(method, path, [host], origins, "2") == 0


@pytest.mark.parametrize(
    ("method", "path", "hosts", "origins", "status"),
    [
        ("GET", "/", [], [], 421),
        ("GET", "/", ["127.0.0.1", "there.example"], [], 421),
        ("GET", "/", ["there.example:7860"], [], 421),
        ("GET", "/", ["127.0.0.1.there.example"], [], 421),
        ("GET", "/", ["user@127.0.0.1"], [], 421),
        ("POST", ANSWER, ["there.example"], ["http://there.example"], 421),
        ("POST", ANSWER, [OURS], ["https://there.example"], 403),
        ("POST", ANSWER, [OURS], ["null"], 403),
        ("POST", ANSWER, [OURS], ["http://127.0.0.1:3000"], 403),
        ("POST", ANSWER, [OURS], [f"{ORIGIN}.there.example"], 403),
        ("POST", ANSWER, [OURS], [ORIGIN, "https://there.example"], 403),
        ("POST", "/upload", [OURS], [ORIGIN], 404),
        ("POST", f"{ANSWER}/", [OURS], [ORIGIN], 404),
        ("POST", "/", [OURS], [ORIGIN], 404),
        ("GET", "/../serve.py", [OURS], [], 404),
        ("GET", "/serve.py", [OURS], [], 404),
        ("GET", "//page.js", [OURS], [], 404),
        ("GET", ANSWER, [OURS], [], 404),
        ("OPTIONS", ANSWER, [OURS], [ORIGIN], 405),
        ("PUT", ANSWER, [OURS], [ORIGIN], 405),
    ],
)
def test_all_else_is_refused(method, path, hosts, origins, status):
    assert refusal(method, path, hosts, origins, "2") == status


@pytest.mark.parametrize(
    ("length", "status"),
    [
        (None, 411),
        ("", 411),
        ("-1", 411),
        ("two", 411),
        ("²", 411),
        (str(MOST_BYTES), 0),
        (str(MOST_BYTES + 1), 413),
        ("9" * 5000, 413),
    ],
)
def test_bodies_say_their_length_and_end(length, status):
    assert refusal("POST", ANSWER, [OURS], [], length) == status


@pytest.fixture(scope="module")
def server():
    opened, _ = open_page(0)
    yield opened
    opened.shutdown()
    opened.server_close()


def ask(server, method, path, body=None, **headers):
    """Return status, headers and text of an answer."""
    connection = http.client.HTTPConnection(*server.server_address, timeout=30)
    connection.request(method, path, body, headers)
    reply = connection.getresponse()
    found = reply.status, dict(reply.getheaders()), reply.read().decode()
    connection.close()
    return found


def test_the_server_sends_the_page_and_keeps_others_out(server):
    status, headers, text = ask(server, "GET", "/")
    assert status == 200
    assert text == page.render()
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    for name in page.FILES:
        assert ask(server, "GET", f"/{name}")[0] == 200
    assert ask(server, "HEAD", "/")[2] == ""
    assert ask(server, "GET", "/", Host="there.example")[0] == 421
    assert ask(server, "POST", ANSWER, "{}", Origin="https://there.example")[0] == 403
    assert ask(server, "GET", "/etc/passwd")[0] == 404
    assert ask(server, "BREW", "/")[0] == 501


@pytest.mark.parametrize("body", ["{", "[]", "null", '{"digit": "<b>"}', "[" * 10_000])
def test_bad_questions_are_answered_in_words(server, body):
    status, _, text = ask(server, "POST", ANSWER, body)
    assert status == 200
    assert 'role="alert"' in text
    assert "<b>" not in text


def test_a_digit_is_sent_as_ink(server):
    assert len(json.loads(ask(server, "POST", ANSWER, '{"digit": "3"}')[2])) == page.SIDE**2


def test_a_port_that_is_taken_is_named(server):
    with pytest.raises(UserError, match=r"Port \d+ cannot be used") as refused:
        open_page(server.server_port)
    assert "--port" in refused.value.hint


def test_only_this_machine_is_served(server):
    with socket.socket() as other:  # another address of this machine
        other.settimeout(2)
        assert other.connect_ex(("127.0.0.2", server.server_port)) != 0
