"""The long-term memory of apache/flink-agents, over a Memory.

Give one to ``FlinkRunnerContext.set_long_term_memory``, or make it in the module of the
agent. A memory set keeps the key, the observation id and the suppression of the action
that got it, so what runs later in another thread touches no other key's items.

With flink-agents installed these are its own classes; without it they are ours, of the
same fields and verbs. Read against its release 0.3.1 and its change 1002.
"""

from crdtmem.compat.flink.adapter import CrdtLongTermMemory
from crdtmem.compat.flink.classes import BaseLongTermMemory, MemorySet, MemorySetItem

__all__ = ["BaseLongTermMemory", "CrdtLongTermMemory", "MemorySet", "MemorySetItem"]
