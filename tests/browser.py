"""Chromium, driven by Playwright, for the tests that look at pages as people do."""

import contextlib

import pytest

from benchmarks.chromium import CHROMIUM, launch


@contextlib.contextmanager
def open_browser():
    """Start it, or skip the test and say what is missing."""
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed")
    api = pytest.importorskip(
        "playwright.sync_api", reason="Playwright is not installed: pip install .[browser]"
    )
    with api.sync_playwright() as playwright:
        browser = launch(playwright)
        yield browser
        browser.close()


@contextlib.contextmanager
def quiet_page(browser, address, **options):
    """Open a page; when it is left, it has asked nobody else for anything, nor complained."""
    context = browser.new_context(**options)
    page = context.new_page()
    complaints, elsewhere = [], []
    page.on("console", lambda m: complaints.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda r: None if _is_ours(r.url, address) else elsewhere.append(r.url))
    yield page
    context.close()
    assert complaints == []
    assert elsewhere == []


def _is_ours(url, address):
    return url.startswith((address, "data:", "blob:"))
