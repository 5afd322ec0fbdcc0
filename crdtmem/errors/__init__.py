"""Every exception that crdtmem raises on purpose.

* CrdtmemError
    * InvalidArgumentError: a bad argument; nothing was read or written
    * ConfigError: a setting that cannot be used; names the setting and its source
        * UntrustedConfigError: a repository's file sets what only the user may
        * ConfigTakenError: a client's file has a foreign entry of our name
        * ConfigUnparsableError: a client's file cannot be edited safely
        * MissingExtraError: a part was asked for that is not installed
        * KeyringError: a file of keys cannot be used
    * SlotError: the slot refused a read or a write; nothing was written
        * SlotNotFoundError: no live slot of this label
        * SlotExistsError: the label is taken in that scope
        * SlotRefusedError: the slot is read-only or append-only
        * SlotQuarantinedError: a record of the slot is damaged
        * SizeLimitError: the text would be longer than the slot allows
        * ConflictError: the slot has changed since the caller read it
        * RevNotKeptError: the text of that rev is no longer kept
        * EditError: the text to be replaced is missing or ambiguous
        * RequestIdReusedError: the request id names another call
        * ImportRefusedError: a strict import found a bad record
        * CondenseSkippedError: no condense pass was begun; the slot is as it was
    * HistoryError: a kept write cannot be undone; nothing was written
        * HistoryNotFoundError: no such history entry
    * CondensePassUnknownError: no condense pass of this id
    * SetError: the memory set refused a read or a write; nothing was written
        * UnboundError: the handle was made without a partition key
        * OwnerThreadError: sets are managed by their binding's owner only
        * ItemNotFoundError: no item of this id in this set under this key
        * ItemConflictError: it is not as the caller took for granted
        * SetLimitError: an item, a set or a namespace would be too large
        * SummaryError: a summariser failed, or its summaries cannot be used
        * EmbeddingError: there is no embedder, or it gives no vectors
    * StoreError: the local store could not do its part
        * StoreBusyError: the write lock was not had in time
        * StoreClosedError: the handle has been closed
        * StoreReadOnlyError: the handle may not write
        * StoreNotFoundError: there is no store, and none was to be made
        * StoreFullError: the disk is full
        * StoreCorruptError: the file is damaged or no store
        * SchemaTooNewError: a newer crdtmem has written the store
        * NetworkFilesystemError: SQLite's locks cannot be trusted there
        * PermissionDeniedError: the system, or its owner's modes, forbid it
    * ServeNotRunningError: no web server runs on the store
    * OtherIncarnationError: the editors of a slot share another document by now
    * DocError: a document does not hold what its records say (a bug or damage)
    * RelayError: a relay could not do its part
        * RelayFolderError: the folder cannot be a relay's, or is not one
        * RelayRunningError: another process serves this folder
        * InsecureBindError: it would listen to the network without a certificate
        * PortInUseError: another process listens on its address
        * TokenNotFoundError: it knows no token of this id
        * StorageError: its log could not do its part
            * StorageFullError: the disk is full; nothing was stored
            * StorageBusyError: another process keeps it locked; nothing was stored
                * StorageUnreachableError: the database is not there at present
                * StorageReadOnlyError: the database takes no writes at present
            * StorageUncertainError: a commit failed, and may be stored or not
                * StorageLostError: the connection to the database was lost in it
            * StorageUnsafeError: the database might lose what it acknowledges
            * StorageCorruptError: the log is damaged, or no relay's
    * SyncError: the relay, or the way to it, could not do its part
        * RelayUnreachableError: not reached, or lost; another attempt may succeed
        * RelayRefusedError: it says no, and will until something changes
        * LeaseHeldError: another process syncs the store
        * InsecureUrlError: the token would be sent in the clear
        * LinkNotFoundError: the namespace is not linked
        * LinkChangedError: the store has other ids than when the link was read
        * KeyMissingError: the namespace is encrypted, and there is no key of it
        * LinkRefusedError: a link cannot be made or taken away as things are
            * LinkExistsError: the namespace is linked already
            * LinkOverlapError: slots have unrelated texts here and there
            * UnsentWritesError: the relay does not have everything yet
    * MirrorError: a mirror could not do its part
        * MirrorBusyError: another process mirrors the folder
        * MirrorUnsafeError: its file system would lose what others write
        * MirrorNotFoundError: the folder is not mirrored
        * UnreadableFileError: a file is blocked; never leaves the mirror
    * ProtocolError: a message breaks the wire protocol
        * LocalProtocolError: this side would have sent it (a bug here)
        * RecordMalformedError: a record's header breaks a rule
        * RemoteProtocolError: the peer sent it (close the connection)
        * UpdateRejectedError: a Yjs update breaks a rule; pycrdt never saw it

A leaf joins the tree together with the code that raises it. It takes its values as
keyword-only arguments, builds its sentence from them and passes them on as details.
"""

from crdtmem.errors.condense import CondensePassUnknownError, CondenseSkippedError
from crdtmem.errors.editors import OtherIncarnationError
from crdtmem.errors.mcp import MissingExtraError
from crdtmem.errors.mirror import (
    MirrorBusyError,
    MirrorError,
    MirrorNotFoundError,
    MirrorUnsafeError,
    UnreadableFileError,
)
from crdtmem.errors.protocol import (
    LocalProtocolError,
    ProtocolError,
    RecordMalformedError,
    RemoteProtocolError,
    UpdateRejectedError,
)
from crdtmem.errors.relay import (
    InsecureBindError,
    PortInUseError,
    RelayError,
    RelayFolderError,
    RelayRunningError,
    StorageBusyError,
    StorageCorruptError,
    StorageError,
    StorageFullError,
    StorageLostError,
    StorageReadOnlyError,
    StorageUncertainError,
    StorageUnreachableError,
    StorageUnsafeError,
    TokenNotFoundError,
)
from crdtmem.errors.sealing import KeyMissingError, KeyringError
from crdtmem.errors.serve import ServeNotRunningError
from crdtmem.errors.sets import (
    EmbeddingError,
    ItemConflictError,
    ItemNotFoundError,
    OwnerThreadError,
    SetError,
    SetLimitError,
    SummaryError,
    UnboundError,
)
from crdtmem.errors.setup import ConfigTakenError, ConfigUnparsableError
from crdtmem.errors.slots import (
    ConflictError,
    EditError,
    HistoryError,
    HistoryNotFoundError,
    ImportRefusedError,
    RequestIdReusedError,
    RevNotKeptError,
    SizeLimitError,
    SlotError,
    SlotExistsError,
    SlotNotFoundError,
    SlotQuarantinedError,
    SlotRefusedError,
)
from crdtmem.errors.store import (
    NetworkFilesystemError,
    PermissionDeniedError,
    SchemaTooNewError,
    StoreBusyError,
    StoreClosedError,
    StoreCorruptError,
    StoreError,
    StoreFullError,
    StoreNotFoundError,
    StoreReadOnlyError,
)
from crdtmem.errors.sync import (
    InsecureUrlError,
    LeaseHeldError,
    LinkChangedError,
    LinkExistsError,
    LinkNotFoundError,
    LinkOverlapError,
    LinkRefusedError,
    RelayRefusedError,
    RelayUnreachableError,
    UnsentWritesError,
)
from crdtmem.errors.tree import (
    ConfigError,
    CrdtmemError,
    DocError,
    InvalidArgumentError,
    SyncError,
    UntrustedConfigError,
)

__all__ = [
    "CondensePassUnknownError",
    "CondenseSkippedError",
    "ConfigError",
    "ConfigTakenError",
    "ConfigUnparsableError",
    "ConflictError",
    "CrdtmemError",
    "DocError",
    "EditError",
    "EmbeddingError",
    "HistoryError",
    "HistoryNotFoundError",
    "ImportRefusedError",
    "InsecureBindError",
    "InsecureUrlError",
    "InvalidArgumentError",
    "ItemConflictError",
    "ItemNotFoundError",
    "KeyMissingError",
    "KeyringError",
    "LeaseHeldError",
    "LinkChangedError",
    "LinkExistsError",
    "LinkNotFoundError",
    "LinkOverlapError",
    "LinkRefusedError",
    "LocalProtocolError",
    "MirrorBusyError",
    "MirrorError",
    "MirrorNotFoundError",
    "MirrorUnsafeError",
    "MissingExtraError",
    "NetworkFilesystemError",
    "OtherIncarnationError",
    "OwnerThreadError",
    "PermissionDeniedError",
    "PortInUseError",
    "ProtocolError",
    "RecordMalformedError",
    "RelayError",
    "RelayFolderError",
    "RelayRefusedError",
    "RelayRunningError",
    "RelayUnreachableError",
    "RemoteProtocolError",
    "RequestIdReusedError",
    "RevNotKeptError",
    "SchemaTooNewError",
    "ServeNotRunningError",
    "SetError",
    "SetLimitError",
    "SizeLimitError",
    "SlotError",
    "SlotExistsError",
    "SlotNotFoundError",
    "SlotQuarantinedError",
    "SlotRefusedError",
    "StorageBusyError",
    "StorageCorruptError",
    "StorageError",
    "StorageFullError",
    "StorageLostError",
    "StorageReadOnlyError",
    "StorageUncertainError",
    "StorageUnreachableError",
    "StorageUnsafeError",
    "StoreBusyError",
    "StoreClosedError",
    "StoreCorruptError",
    "StoreError",
    "StoreFullError",
    "StoreNotFoundError",
    "StoreReadOnlyError",
    "SummaryError",
    "SyncError",
    "TokenNotFoundError",
    "UnboundError",
    "UnreadableFileError",
    "UnsentWritesError",
    "UntrustedConfigError",
    "UpdateRejectedError",
]
