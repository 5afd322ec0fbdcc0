"""Every bound and default of crdtmem: name, unit, value, reason.

Nothing waits or grows without a bound, and every bound stands here. The last word of
a name is its unit. Where a user may set another value, the caller passes it in; this
package is never changed at run time.
"""

from crdtmem.limits import (
    agents,
    condense,
    database,
    editors,
    local,
    mirror,
    search,
    serve,
    sets,
    sync,
)
from crdtmem.limits.agents import *  # noqa: F403 - as above
from crdtmem.limits.condense import *  # noqa: F403 - all bounds, under one name
from crdtmem.limits.database import *  # noqa: F403 - as above
from crdtmem.limits.editors import *  # noqa: F403 - as above
from crdtmem.limits.local import *  # noqa: F403 - as above
from crdtmem.limits.mirror import *  # noqa: F403 - as above
from crdtmem.limits.search import *  # noqa: F403 - as above
from crdtmem.limits.serve import *  # noqa: F403 - as above
from crdtmem.limits.sets import *  # noqa: F403 - as above
from crdtmem.limits.sync import *  # noqa: F403 - as above

__all__: list[str] = []
__all__ += condense.__all__
__all__ += database.__all__
__all__ += editors.__all__
__all__ += local.__all__
__all__ += agents.__all__
__all__ += mirror.__all__
__all__ += search.__all__
__all__ += serve.__all__
__all__ += sets.__all__
__all__ += sync.__all__
