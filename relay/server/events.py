"""What a relay writes down: one JSON line an event.

No line holds a payload, a token or the name of a doc. Of an exception it has the class
and the places that it went through; its sentence may quote what a peer has sent.
"""

import json
import logging
import traceback
from datetime import UTC, datetime

__all__ = ["JsonLines", "log"]

logger = logging.getLogger("relay")


def log(
    event: str,
    level: int = logging.INFO,
    *,
    error: BaseException | None = None,
    **fields: object,
) -> None:
    """Write down an event.

    Args:
        event: In kebab-case.
        level: As in logging.
        error: What was raised, if something was.
        fields: JSON values beside it.

    """
    logger.log(level, event, exc_info=error, extra={"fields": fields})


class JsonLines(logging.Formatter):
    """Turns a record of any library into one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        line: dict[str, object] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[0] is not None:
            frames = traceback.extract_tb(record.exc_info[2])
            line["error"] = record.exc_info[0].__name__
            line["where"] = [f"{frame.name}:{frame.lineno}" for frame in frames[-8:]]
        return json.dumps(line)
