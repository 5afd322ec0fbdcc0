"""The namespaces of one connection as the relay sees it: joins, puts, parts, reads.

Its part of ``ServerSession``, which alone may be talked to: it knows whether the
connection is open, and closes it when something here is the client's fault.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from crdtmem.errors import RemoteProtocolError
from crdtmem.protocol.answers import Answers
from crdtmem.protocol.downloads import Download
from crdtmem.protocol.messages import (
    Ack,
    Action,
    Join,
    Joined,
    JoinFlag,
    Part,
    Presence,
    Put,
    Rewind,
    Samples,
)
from crdtmem.protocol.parts import PartAssembler, RecordLimits
from crdtmem.protocol.relaying import (
    Grant,
    JoinState,
    PutRefusal,
    PutResult,
    Sample,
    Scope,
)
from crdtmem.protocol.serving import (
    JOIN_REFUSALS,
    PUT_REFUSALS,
    STAGES,
    JoinRequest,
    LeaveRequest,
    MatchRequest,
    PresenceRequest,
    PutRequest,
    RelayLimits,
    Request,
    Stage,
    TransferBudget,
)
from crdtmem.protocol.turns import Turns
from crdtmem.protocol.uploads import Fault, Settled, Upload, Window

__all__ = ["ServerNamespaces"]


@dataclass(slots=True)
class _Place:
    """A namespace that the client has asked for, until it leaves it."""

    asked: Join
    stage: Stage = Stage.JOINING
    found: JoinState = field(default_factory=lambda: JoinState(0))

    def move(self, event: str) -> bool:
        """Go on by an event; return False where it has no row."""
        stage = STAGES.get((self.stage, event))
        self.stage = stage or self.stage
        return stage is not None


@dataclass(frozen=True, slots=True)
class _Served:
    """A namespace that is joined."""

    asked: Join
    upload: Upload
    download: Download

    @property
    def namespace(self) -> str:
        return self.asked.namespace


class ServerNamespaces:
    """What a connection has joined, and what comes and goes there.

    The methods that take a message raise RemoteProtocolError where it is the client's
    fault; its detail is the error's code if it is one.

    Args:
        grant: What the token allows.
        limits: Of the relay.
        answers: Where what is to be said goes.
        transfers: Shared by all connections.

    Attributes:
        replica_id: As in hello.
        incarnation: As in hello.
        has_joined: Whether any namespace was ever asked for.
        turns: The downloads.

    """

    def __init__(
        self,
        grant: Grant,
        limits: RelayLimits,
        *,
        answers: Answers,
        transfers: TransferBudget,
    ) -> None:
        self.replica_id = b""
        self.incarnation = b""
        self.has_joined = False
        self.turns = Turns(transfers)
        self._grant = grant
        self._limits = limits
        self._answers = answers
        self._transfers = transfers
        self._record_limits = RecordLimits(limits.update_bytes, limits.snapshot_bytes)
        self._assembler = PartAssembler(self._record_limits)
        self._places: dict[str, _Place] = {}
        self._served: dict[int, _Served] = {}
        # Of namespaces that were left too, until what is in flight has settled.
        self._uploads: dict[int, Upload] = {}

    @property
    def part_deadline(self) -> float | None:
        """When the next part is overdue; None if none is awaited."""
        return self._assembler.deadline

    @property
    def is_settled(self) -> bool:
        """Whether no put is in flight."""
        return all(upload.is_idle for upload in self._uploads.values())

    def head_of(self, ns_no: int) -> int:
        """Return the newest seq that is known of a joined namespace."""
        return self._served[ns_no].download.head

    def wants_presence(self, ns_no: int) -> bool:
        """Tell whether others' presences in a namespace are sent here."""
        served = self._served.get(ns_no)
        return (
            served is not None
            and bool(served.asked.flags & JoinFlag.PRESENCE)
            and Scope.PRESENCE in self._grant.scopes
        )

    def take_join(self, asked: Join) -> Request | None:
        """Take a join: it is asked for, or refused at once."""
        self.has_joined = True
        if asked.namespace in self._places:
            raise _broken("out-of-order", f"{asked.namespace} is joined already")
        if len(self._places) >= self._limits.joins_max:
            self._refuse_join(asked.namespace, "too-many-joins")
            return None
        may_read = Scope.READ in self._grant.scopes
        if not may_read or not self._grant.covers(asked.namespace):
            self._refuse_join(asked.namespace, "forbidden")
            return None
        self._places[asked.namespace] = _Place(asked)
        may_create = Scope.WRITE in self._grant.scopes
        return JoinRequest(asked.namespace, may_create, Sample(asked.seq, asked.chain))

    def take_samples(self, message: Samples) -> Request:
        """Take the samples that a rewind asked for."""
        place = self._places.get(message.namespace)
        if place is None or not place.move("samples"):
            raise _broken("out-of-order", f"{message.namespace} is not rewound")
        return MatchRequest(message.namespace, place.found.ns_no, message.samples)

    def take_leave(self, ns_no: int) -> Request:
        """Take a leave; what is in flight ends in silence."""
        self._leave(self._served_at(ns_no))
        return LeaveRequest(ns_no)

    def take_put(self, put: Put) -> Request | None:
        """Take a put, which must not stand inside a transfer of its namespace."""
        self._assembler.expect_none_of(put.ns_no)
        return self._take_records(put.ns_no, put.records)

    def _take_records(self, ns_no: int, records: Sequence[bytes]) -> Request | None:
        """Take the records of a put; none are left if all are discarded."""
        served = self._served_at(ns_no)
        accepted = served.upload.accept(records)
        self._tell_faults(served)
        return PutRequest(ns_no, accepted) if accepted else None

    def take_part(self, part: Part, now: float) -> Request | None:
        """Take a part; with the last one it is a put of one record."""
        served = self._served_at(part.ns_no)
        if not self._is_due(served.upload, part):
            return None
        held_bytes = self._assembler.held_bytes
        record = self._assembler.accept(part, now)
        if record is not None:
            self._transfers.hold(-held_bytes)
            return self._take_records(part.ns_no, [record])
        self._transfers.hold(len(part.data))
        if not self._transfers.has_room(0):
            self._drop_transfer()
            served.upload.refuse(Fault(PutRefusal("busy", part.id, part.id), ""))
            self._tell_faults(served)
        return None

    def _is_due(self, upload: Upload, part: Part) -> bool:
        """Tell whether a part counts.

        While none is on its way, one that does not begin what a blocked stream waits
        for belongs to a record that was given up here; the client does not know yet.
        """
        if self._assembler.ns_no or not upload.is_blocked:
            return True
        return part.offset == 0 and upload.expects(part.id)

    def take_presence(self, presence: Presence) -> Request | None:
        """Take a presence, which must be of this very connection."""
        own = (self.replica_id, self.incarnation)
        if (presence.replica_id, presence.incarnation) != own:
            raise _broken("bad-value", "presence of another replica")
        self._served_at(presence.ns_no)
        has_scope = Scope.PRESENCE in self._grant.scopes
        return PresenceRequest(presence) if has_scope else None

    def join_done(self, namespace: str, found: JoinState) -> bool:
        """Take what the log says to a join; tell whether the namespace is joined."""
        if found.code:
            del self._places[namespace]
            self._refuse_join(namespace, found.code)
            return False
        place = self._places[namespace]
        place.found = found
        if found.resume is not None:
            place.move("join_done")
            self._enter(place.asked, found, found.resume)
            return True
        place.move("rewind")
        cause, head, floor = found.cause, found.head, found.floor
        self._answers.say(Rewind(namespace, cause, head, floor))
        return False

    def match_done(self, namespace: str, at: Sample, head: int) -> bool:
        """Take where the samples meet the log; tell whether the namespace is joined.

        Args:
            namespace: As asked for.
            at: The place.
            head: Newest seq that is known now.

        """
        place = self._places[namespace]
        place.move("match_done")
        found = replace(place.found, head=max(head, place.found.head))
        self._enter(place.asked, found, at)
        return True

    def put_done(self, result: PutResult) -> None:
        """Take what became of the oldest put of a namespace that is in flight."""
        upload = self._uploads.get(result.ns_no)
        if upload is None:
            return
        settled = upload.settle(result)
        served = self._served.get(result.ns_no)
        if served is not None:
            self._tell(served, settled)
            self._tell_faults(served)
        elif upload.is_idle:
            del self._uploads[result.ns_no]

    def release(self) -> None:
        """Give back all that is held, in both directions."""
        self.drop_transfers()
        self._places.clear()
        self._served.clear()
        self._uploads.clear()

    def drop_transfers(self) -> None:
        """Send no more records, and take no more parts."""
        self._drop_transfer()
        self.turns.clear()

    def _enter(self, asked: Join, found: JoinState, at: Sample) -> None:
        upload = self._uploads.setdefault(
            found.ns_no,
            Upload(
                asked.namespace,
                self.replica_id,
                limits=self._record_limits,
                window=Window(self._limits.window_records, self._limits.window_bytes),
            ),
        )
        upload.begin(found.own_max)
        download = Download(
            found.ns_no,
            self.replica_id,
            start=at,
            head=found.head,
            own_seq=asked.own_seq,
            part_bytes=self._limits.part_bytes,
        )
        self._served[found.ns_no] = _Served(asked, upload, download)
        self.turns.add(download)
        self._answers.say(
            Joined(
                namespace=asked.namespace,
                ns_no=found.ns_no,
                scopes=self._grant.scopes,
                head=found.head,
                floor=found.floor,
                resume_seq=at.seq,
                resume_chain=at.chain,
                own_max=found.own_max,
                own_id=found.own_id,
            )
        )

    def _served_at(self, ns_no: int) -> _Served:
        """Return the namespace that a message is for."""
        served = self._served.get(ns_no)
        if served is None:
            raise _broken("out-of-order", f"no namespace {ns_no} is joined")
        return served

    def _leave(self, served: _Served) -> None:
        ns_no = served.download.ns_no
        del self._places[served.namespace], self._served[ns_no]
        if self._assembler.ns_no == ns_no:
            self._drop_transfer()
        self.turns.remove(ns_no)
        self._answers.leave(ns_no)
        served.upload.leave()
        if served.upload.is_idle:
            del self._uploads[ns_no]

    def _tell(self, served: _Served, settled: Settled) -> None:
        acked = settled.acked
        if acked is not None and acked.at is not None:
            download = served.download
            download.own_seq = max(download.own_seq, acked.acked)
            at = acked.at
            self._answers.acknowledge(Ack(acked.ns_no, acked.acked, at.seq, at.chain))
        if settled.fault is not None:
            self._tell_fault(served, settled.fault)

    def _tell_faults(self, served: _Served) -> None:
        """Tell the faults whose turn has come."""
        while (fault := served.upload.next_fault()) is not None:
            self._tell_fault(served, fault)

    def _tell_fault(self, served: _Served, fault: Fault) -> None:
        what = PUT_REFUSALS.get(fault.refusal.code, (Action.GO_ON, 0))
        self._answers.refuse(served.namespace, what, fault.refusal, fault.text)
        if self._assembler.ns_no == served.download.ns_no:
            self._drop_transfer()

    def _refuse_join(self, namespace: str, code: str) -> None:
        what = JOIN_REFUSALS.get(code, (Action.STOP, 0))
        self._answers.refuse(namespace, what, PutRefusal(code, 0, 0))

    def _drop_transfer(self) -> None:
        self._transfers.hold(-self._assembler.held_bytes)
        self._assembler.drop()


def _broken(detail: str, what: str) -> RemoteProtocolError:
    """Return the error for what a client has done."""
    return RemoteProtocolError(detail, what)
