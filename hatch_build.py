"""The README as the package index shows it: links and pictures lead to the repository.

In the README they name files of the checkout. The index does not have these files, so a build for
it sets GEOSOFTMAX_HOME to the address of the repository, as .github/workflows/publish.yml does.
Without it the README stays as it is.
"""

import os
import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

PAPER = "https://proceedings.mlr.press/v97/mensch19a.html"
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|mailto:|#)([^)\s]+)\)")


def lead_home(text: str, home: str, version: str) -> str:
    """Return Markdown whose relative links name files of a tagged version of a repository."""

    def absolute(found: re.Match) -> str:
        picture, words, path = found.groups()
        kind = "raw" if picture else "blob"
        return f"{picture}[{words}]({home.rstrip('/')}/{kind}/v{version}/{path})"

    return LINK.sub(absolute, text)


class CustomMetadataHook(MetadataHookInterface):
    """Set the README, and the address of the repository where it is known."""

    def update(self, metadata: dict) -> None:
        """Complete what pyproject.toml says."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf8")
        metadata["urls"] = {"Paper": PAPER}
        home = os.environ.get("GEOSOFTMAX_HOME")
        if home:
            source = (Path(self.root) / "src/geosoftmax/__init__.py").read_text(encoding="utf8")
            (version,) = re.findall(r'^__version__ = "(.+)"$', source, re.MULTILINE)
            text = lead_home(text, home, version)
            metadata["urls"]["Repository"] = home
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
