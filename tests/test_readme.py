"""The examples of the README run as they stand."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf8"), re.DOTALL)


def test_readme_is_short():
    """What it is, one picture, how to begin: the site has the rest."""
    words = re.sub(r"```.*?```", "", README.read_text(encoding="utf8"), flags=re.DOTALL).split()
    assert len(words) <= 900


PRINTED = ["", "accuracy 0.8"]


def test_the_first_block_has_ten_lines():
    assert len([line for line in BLOCKS[0].splitlines() if line.strip()]) == 10


@pytest.mark.parametrize(("block", "printed"), [*zip(BLOCKS, PRINTED, strict=True)])
def test_example_runs(block, printed, capsys):
    exec(compile(block, "README.md", "exec"), {})
    assert printed in capsys.readouterr().out
