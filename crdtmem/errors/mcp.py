"""Errors of front ends that need more than the plain installation."""

from crdtmem.errors.tree import ConfigError

__all__ = ["MissingExtraError"]


class MissingExtraError(ConfigError):
    """A part was asked for whose packages are not installed; nothing was run.

    Args:
        extra: The extra that brings them.
        package: The package that is missing.

    """

    code = "missing-extra"

    def __init__(self, *, extra: str, package: str) -> None:
        super().__init__(
            f"the package {package!r} is not installed; it comes with the extra"
            f" {extra!r}",
            hint=f"run 'pip install \"crdtmem[{extra}]\"'",
            details={"extra": extra, "package": package},
        )
