"""Front ends that speak as other systems do, over the verbs of a Memory.

Each is a module of its own, loaded by who asks for it: ``agentmemory`` needs nothing
more, ``anthropic`` needs the package of that name, and ``flink`` derives from the
classes of flink-agents where that is installed.
"""

__all__: list[str] = []
