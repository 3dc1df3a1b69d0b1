"""What the maintainers run: checks of the English, of releases, and of supported versions."""
