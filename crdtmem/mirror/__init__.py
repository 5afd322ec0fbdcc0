"""Markdown files that follow slots, and slots that follow the files."""

__all__: list[str] = []
