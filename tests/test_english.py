"""The check of the English finds what it should, and nothing else."""

from tools import english

LONG = " ".join(["word"] * (english.LONGEST + 1))


def complaints(text):
    return [(found.line, found.words) for found in english.examine(text, "page.md")]


def test_long_sentences_are_found_where_they_begin():
    ((line, words),) = complaints(f"# Title\n\nShort one. And\nshort two.\n\n{LONG}.\n")
    assert line == 6
    assert words.startswith(f"{english.LONGEST + 1} words: word word")


def test_code_formulas_and_addresses_are_not_counted():
    fenced = f"```python\n{LONG}\n```\n"
    assert complaints(f"{fenced}`{LONG}` and ${LONG}$ and [here]({LONG.replace(' ', '/')}).") == []
    table = f"===== ====\n{LONG}\n===== ====\n"
    assert complaints(table) == []


def test_colons_list_items_and_cells_end_a_sentence():
    part = " ".join(["word"] * (english.LONGEST - 5))
    assert complaints(f"{part}: {part}; {part}. {part}") == []
    assert complaints(f"- {part}\n- {part}\n") == []
    assert complaints(f"| {part} | {part} |\n") == []


def test_replaced_words_are_found_with_what_to_write():
    assert complaints("All is well.\nThe back-end works.") == [(2, "'back-end': backend")]
    assert complaints("The `back-end` of the code.") == []


def test_docstrings_messages_and_help_are_read():
    source = (
        '"""Module."""\n'
        "def public():\n"
        '    """A twin."""\n'
        '    raise ValueError("two", "lanes")\n'
        "def _private():\n"
        '    """A twin."""\n'
        'option(help="It is told")\n'
    )
    found = [words for _, words in english.texts(source)]
    assert sorted(found) == ["A twin.", "It is told", "Module.", "two lanes"]


def test_the_checkout_is_clean():
    assert english.check() == []
