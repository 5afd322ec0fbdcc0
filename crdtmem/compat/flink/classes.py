"""The classes that flink-agents' agents expect: its own where it is installed.

To the type checker they are always ours, so that one check holds for both.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crdtmem.compat.flink.own import BaseLongTermMemory, MemorySet, MemorySetItem
else:
    try:
        from flink_agents.api.memory.long_term_memory import (
            BaseLongTermMemory,
            MemorySet,
            MemorySetItem,
        )
    except ImportError:
        from crdtmem.compat.flink.own import (
            BaseLongTermMemory,
            MemorySet,
            MemorySetItem,
        )

__all__ = ["BaseLongTermMemory", "MemorySet", "MemorySetItem"]
