"""Condense: the old part of a slot rewritten while others go on writing it."""

__all__: list[str] = []
