"""Units with which the system starts the server when its user logs in."""

from collections.abc import Sequence
from xml.sax.saxutils import escape

__all__ = ["launchd_unit", "systemd_unit"]


def systemd_unit(argv: Sequence[str]) -> str:
    """Return a user unit of systemd.

    Args:
        argv: What it runs, the program with its absolute path.

    """
    return (
        "[Unit]\n"
        "Description=crdtmem: the shared memory in a browser\n"
        "\n"
        "[Service]\n"
        f"ExecStart={' '.join(map(_quoted, argv))}\n"
        "Restart=on-failure\n"
        "\n"
        "[Install]\n"
        "WantedBy=default.target\n"
    )


def launchd_unit(argv: Sequence[str], log: str) -> str:
    """Return an agent of launchd.

    Args:
        argv: What it runs, the program with its absolute path.
        log: Where its messages go.

    """
    words = "".join(f"    <string>{escape(word)}</string>\n" for word in argv)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN"'
        ' "http://www.apple.com/DTDs/PropertyList-1.0.dtd">\n'
        '<plist version="1.0">\n'
        "<dict>\n"
        "  <key>Label</key>\n"
        "  <string>crdtmem.serve</string>\n"
        "  <key>ProgramArguments</key>\n"
        f"  <array>\n{words}  </array>\n"
        "  <key>RunAtLoad</key>\n"
        "  <true/>\n"
        "  <key>KeepAlive</key>\n"
        "  <dict>\n"
        "    <key>SuccessfulExit</key>\n"
        "    <false/>\n"
        "  </dict>\n"
        "  <key>StandardErrorPath</key>\n"
        f"  <string>{escape(log)}</string>\n"
        "</dict>\n"
        "</plist>\n"
    )


def _quoted(word: str) -> str:
    """Return a word as systemd reads it: no specifier, variable or blank acts."""
    text = word.replace("\\", "\\\\").replace('"', '\\"')
    text = text.replace("%", "%%").replace("$", "$$")
    return f'"{text}"' if set(text) & set(" \t'\"\\;") else text
