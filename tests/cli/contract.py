"""Checks what a command printed against the class that it prints."""

import json

from pydantic import TypeAdapter

__all__ = ["validated"]


def validated(model, text):
    """Return the JSON of one line, after pydantic has found no fault in it."""
    value = json.loads(text)
    TypeAdapter(model).validate_python(value)
    return value
