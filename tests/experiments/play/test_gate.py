"""What the server of the page refuses: other machines' names, other sites, uploads, long bodies."""

import asyncio

import pytest

from geosoftmax_experiments.play.gate import MOST_BYTES, Gate

OURS = {"host": "127.0.0.1:7860"}
SAME = {**OURS, "origin": "http://127.0.0.1:7860"}
ANSWER = "/gradio_api/run/predict"


def ask(method, path, headers, parts=(b"",), kind="http"):
    """Send a request through the gate; return what was sent back and what the page got."""
    reached, sent, waiting = [], [], list(parts)

    async def page(scope, receive, send):
        body = b""
        while (message := await receive())["more_body"]:
            body += message["body"]
        reached.append(body + message["body"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"answer"})

    async def receive():
        part = waiting.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(waiting)}

    async def send(message):
        sent.append(message)

    encoded = [(key.encode(), value.encode()) for key, value in headers.items()]
    scope = {"type": kind, "method": method, "path": path, "headers": encoded}
    asyncio.run(Gate(page)(scope, receive, send))
    return sent, reached


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("GET", "/", OURS),
        ("GET", "/", {"host": "localhost:9000"}),  # through a tunnel
        ("HEAD", "/", OURS),
        ("GET", "/assets/index.js", SAME),
        ("POST", ANSWER, SAME),
        ("POST", ANSWER, OURS),  # not by a browser
        ("POST", ANSWER, {"host": "LOCALHOST:1", "origin": "http://localhost:1"}),
    ],
)
def test_the_page_is_answered(method, path, headers):
    sent, reached = ask(method, path, headers, [b"{", b"}"])
    assert sent[0]["status"] == 200
    assert reached == [b"{}"]
    assert b"frame-ancestors 'none'" in dict(sent[0]["headers"])[b"content-security-policy"]


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/", {}, 421),
        ("GET", "/", {"host": "there.example:7860"}, 421),
        ("GET", "/", {"host": "127.0.0.1.there.example"}, 421),
        ("GET", "/", {"host": "user@127.0.0.1"}, 421),
        ("POST", ANSWER, {"host": "there.example", "origin": "http://there.example"}, 421),
        ("POST", ANSWER, {**OURS, "origin": "https://there.example"}, 403),
        ("POST", ANSWER, {**OURS, "origin": "null"}, 403),
        ("POST", ANSWER, {**OURS, "origin": "http://127.0.0.1:3000"}, 403),
        ("POST", ANSWER, {**OURS, "origin": "http://127.0.0.1:7860.there.example"}, 403),
        ("POST", "/gradio_api/upload", SAME, 404),
        ("POST", "/upload", SAME, 404),
        ("POST", "/gradio_api/queue/join", SAME, 404),
        ("POST", "/gradio_api/run/predict/", SAME, 404),
        ("POST", "//gradio_api/upload", SAME, 404),
        ("GET", "/gradio_api/file=/etc/passwd", OURS, 404),
        ("GET", "/gradio_api/proxy=http://there.example", OURS, 404),
        ("GET", "/gradio_api/deep_link", OURS, 404),
        ("GET", "/docs", OURS, 404),
        ("OPTIONS", ANSWER, SAME, 405),
        ("PUT", ANSWER, SAME, 405),
        ("DELETE", "/", OURS, 405),
    ],
)
def test_all_else_is_refused_before_the_page(method, path, headers, status):
    sent, reached = ask(method, path, headers)
    assert sent[0]["status"] == status
    assert reached == []


def test_two_hosts_are_none():
    sent = []

    async def send(message):
        sent.append(message)

    headers = [(b"host", b"127.0.0.1"), (b"host", b"there.example")]
    scope = {"type": "http", "method": "GET", "path": "/", "headers": headers}
    asyncio.run(Gate(None)(scope, None, send))
    assert sent[0]["status"] == 421


def test_bodies_end():
    """By what comes, not by what the header says; what is too long is not kept."""
    part = bytes(2**15)
    count = MOST_BYTES // len(part)
    assert ask("POST", ANSWER, SAME, [part] * count)[0][0]["status"] == 200
    parts = [part] * 10_000
    sent, reached = ask("POST", ANSWER, SAME, parts)
    assert sent[0]["status"] == 413
    assert reached == []
    assert ask("GET", "/", OURS, parts)[0][0]["status"] == 413


def test_there_are_no_sockets():
    sent, reached = ask("GET", "/", OURS, kind="websocket")
    assert [message["type"] for message in sent] == ["websocket.close"]
    assert reached == []
