"""A session of the relay with one client, driven by hand."""

from crdtmem.protocol.messages import Hello, Join, Records, decode_frame, encode_frame
from crdtmem.protocol.records import Header, RecordKind, build_record
from crdtmem.protocol.relaying import Grant, JoinState, RelayIdentity, Sample, Scope
from crdtmem.protocol.server import RelayLimits, ServerSession

__all__ = [
    "HELLO",
    "JOIN",
    "LEASE",
    "REPLICA",
    "START",
    "Connection",
    "record",
    "records_in",
]

REPLICA, LEASE = b"r" * 16, b"l" * 16
HELLO = Hello(0, REPLICA, LEASE, "test")
ALL = Scope.READ | Scope.WRITE | Scope.COMPACT | Scope.PRESENCE
START = Sample(0, bytes(32))
JOIN = Join("notes", 0, bytes(16), 0, bytes(32), 0)


class Connection:
    """A session, and what it has asked for and sent."""

    def __init__(self, limits=None, *, scopes=ALL):
        self.session = ServerSession(
            Grant("aaaaaaaaaa", "*", scopes),
            RelayIdentity(b"y" * 16, b"e" * 16),
            limits or RelayLimits(),
            now=100.0,
        )
        self.now = 100.0

    def says(self, *messages):
        return self.session.receive(encode_frame(messages), self.now)

    def hears(self):
        """Return what is sent now, decoded."""
        frames = self.session.data_to_send()
        self.session.sent()
        return [message for frame in frames for message in decode_frame(frame)]

    def opens(self):
        self.says(HELLO)
        self.session.welcome(self.now)
        self.hears()
        return self

    def joins(self, namespace="notes", ns_no=1, **state):
        self.says(Join(namespace, 0, bytes(16), 0, bytes(32), 0))
        found = JoinState(ns_no, **{"resume": START, **state})
        joined = self.session.join_done(namespace, found)
        self.hears()
        assert joined
        return self

    @property
    def end(self):
        closing = self.session.closing
        return (closing.code, closing.reason) if closing else None


def records_in(frame: bytes) -> Records:
    """Decode a frame that holds records and nothing else."""
    (records,) = decode_frame(frame)
    assert isinstance(records, Records)
    return records


def record(seq):
    header = Header(RecordKind.UPDATE, 0, b"d" * 16, REPLICA, seq, 0, 0)
    return build_record(header, b"payload")
