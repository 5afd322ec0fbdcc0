"""The web server: pages, the REST API and the gateway for Yjs editors.

It holds no rules: each route asks one verb of the memory and shows what that returned.
Loaded by ``crdtmem serve`` alone.
"""

__all__: list[str] = []
