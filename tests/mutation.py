"""A known bug: one edit of one place, and where it must be caught."""

from dataclasses import dataclass

__all__ = ["Mutation"]


@dataclass(frozen=True, slots=True)
class Mutation:
    """One bug.

    Attributes:
        name: What is wrong, in kebab-case.
        path: The file, from the root of the repository.
        right: Text that occurs there exactly once.
        wrong: What the bug has in its place.
        tests: Where the bug must be caught, as arguments to pytest.

    """

    name: str
    path: str
    right: str
    wrong: str
    tests: tuple[str, ...]
