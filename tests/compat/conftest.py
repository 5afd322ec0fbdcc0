"""What the tests of the front ends in other systems' words share: handles on stores."""

from tests.service.conftest import (
    memory,
    open_lane,
    other,
    unchanged,
)

__all__ = ["memory", "open_lane", "other", "unchanged"]
