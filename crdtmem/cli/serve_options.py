"""The row of the table for the web server."""

from crdtmem.cli.grammar import Argument, Command, Option

__all__ = ["SERVE"]

SERVE = (
    Command(
        "serve",
        "Show the memory in a browser, and serve programs and editors",
        "serve",
        "none",
        arguments=(
            Argument("action", is_required=False, choices=("unit",)),
            Argument("system", is_required=False, choices=("systemd", "launchd")),
        ),
        options=(
            Option(
                ("--host",), "The address to listen on (127.0.0.1).", is_left_out=True
            ),
            Option(
                ("--port",),
                "The port (8790, or one of the next nine).",
                "whole",
                is_left_out=True,
            ),
            Option(
                ("--open",), "Open the page in a browser.", "flag", called="is_opened"
            ),
            Option(("--url",), "Print a new URL of the server that runs.", "flag"),
            Option(("--another",), "Start one although one runs.", "flag"),
            Option(("--read-only",), "Write nothing.", "flag", is_left_out=True),
            Option(
                ("--only-project",), "Show this project and no other.", is_left_out=True
            ),
            Option(
                ("--token-file",),
                "A file of mode 0600 with lines NAME read|write TOKEN.",
                is_left_out=True,
            ),
            Option(
                ("--origin",),
                "Another origin that may use the API, with a token.",
                is_many=True,
                called="origins",
                is_left_out=True,
            ),
            Option(
                ("--public-url",),
                "What the server is called from outside.",
                is_left_out=True,
            ),
            Option(
                ("--tls-cert",), "The certificate, with --tls-key.", is_left_out=True
            ),
            Option(("--tls-key",), "Its key.", is_left_out=True),
            Option(
                ("--behind-proxy",),
                "The addresses (CIDR) of a proxy with TLS.",
                is_left_out=True,
            ),
            Option(
                ("--agentmemory-open",),
                "Let programs of this machine in without a token, under /agentmemory.",
                "flag",
                is_left_out=True,
            ),
            Option(
                ("--log-format",),
                "How -v tells of requests (text).",
                "choice",
                choices=("text", "json"),
                is_left_out=True,
            ),
        ),
        more="Prints a URL that is good once, for ten minutes, and serves until it is"
        " stopped. 'serve unit systemd' and 'serve unit launchd' print a unit that"
        " starts it when its user logs in; 'serve --url' then leads there. Any host but"
        " the loopback one needs --public-url and TLS. Needs the extra 'serve'.",
    ),
)
