"""What pyproject.toml cannot say: the library of the same version, and files of another folder."""

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface


class CustomMetadataHook(MetadataHookInterface):
    """Set the dependencies: the application uses more of the library than what is public."""

    def update(self, metadata: dict) -> None:
        """Complete what pyproject.toml says."""
        library = f"geosoftmax[sklearn]=={metadata['version']}"
        metadata["dependencies"] = [library, *self.config["needs"]]


class CustomBuildHook(BuildHookInterface):
    """Add the files. An editable install has them through its path: a copy would hide edits."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Say what a wheel holds."""
        if version != "editable":
            build_data["force_include"]["../src/geosoftmax_experiments"] = "geosoftmax_experiments"
