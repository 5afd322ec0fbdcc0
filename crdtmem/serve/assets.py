"""Style sheet, script and icon, under names that change whenever they do."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

__all__ = ["ICON", "SCRIPT", "STATIC", "STYLE"]

_FOLDER: Final = Path(__file__).with_name("static")
_TYPES: Final = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}


def _named(name: str) -> tuple[str, tuple[str, bytes]]:
    path = _FOLDER / name
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()[:16]
    return f"{path.stem}.{digest}{path.suffix}", (_TYPES[path.suffix], content)


_SCRIPT, _STYLE, _ICON = map(_named, ("app.js", "style.css", "icon.svg"))

STATIC: Mapping[str, tuple[str, bytes]] = MappingProxyType(
    dict((_SCRIPT, _STYLE, _ICON))
)
"""Type and content of the files, by the last part of their address."""

SCRIPT: Final = f"/static/{_SCRIPT[0]}"
STYLE: Final = f"/static/{_STYLE[0]}"
ICON: Final = f"/static/{_ICON[0]}"
