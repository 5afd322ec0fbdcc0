"""The MCP server: the memory as tools, resources and prompts of a model's client.

``arguments`` reads what a call gives, ``tools`` makes verbs of it, ``replies`` what is
sent back; none of them knows the SDK's loop. ``session`` is what one client has open
and has seen, ``server`` puts all of it behind the SDK, ``stdio`` runs it over pipes.
"""
