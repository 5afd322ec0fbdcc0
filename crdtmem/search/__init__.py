"""Search: words in slots, in items of memory sets, and in the past of a slot."""

__all__: list[str] = []
