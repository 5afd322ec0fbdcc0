"""The one door through which pycrdt's failures leave.

A panic in Rust arrives as ``PanicException``, which is a BaseException: without this it
would pass every ``except Exception`` above and end the process.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from crdtmem.errors import DocError

__all__ = ["doc_errors"]


@contextmanager
def doc_errors(doing: str) -> Iterator[None]:
    """Turn what pycrdt raises, panics included, into DocError.

    After it the doc is not to be trusted: throw it away and load it again.

    Args:
        doing: What was being done, for the sentence.

    """
    try:
        yield
    except (ValueError, TypeError, RuntimeError) as exc:
        raise DocError(f"pycrdt could not {doing}: {exc}") from exc
    except BaseException as exc:
        # PyO3 makes the class anew in each extension module, so it has no importable
        # home; its name is all there is to know it by.
        if type(exc).__name__ != "PanicException":
            raise
        raise DocError(f"pycrdt panicked while it was to {doing}: {exc}") from exc
