"""The application needs the library of its own version: it uses more of it than what is public."""

from hatchling.metadata.plugin.interface import MetadataHookInterface


class CustomMetadataHook(MetadataHookInterface):
    """Set the dependencies."""

    def update(self, metadata: dict) -> None:
        """Complete what pyproject.toml says."""
        library = f"geosoftmax[sklearn]=={metadata['version']}"
        metadata["dependencies"] = [library, *self.config["needs"]]
