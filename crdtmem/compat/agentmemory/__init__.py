"""The slots of rohitg00/agentmemory: its functions and its routes, over a Memory.

Payloads, results and the phrases that callers match on are those of its release 0.9.29
with its change 1175; the sentences, the guards and what is kept are ours. Where the two
differ on purpose, the difference is stricter: what is refused here was dropped or
overwritten there.
"""

from crdtmem.compat.agentmemory.functions import AgentMemorySlots
from crdtmem.compat.agentmemory.rest import respond

__all__ = ["AgentMemorySlots", "respond"]
