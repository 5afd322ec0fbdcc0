"""Known bugs of sync: the relay, the sessions, and the store's side of it."""

from tests.mutation import Mutation

__all__ = ["SYNC_MUTATIONS"]

SYNC_MUTATIONS = [
    Mutation(
        name="relay-acknowledges-before-the-commit",
        path="relay/core.py",
        right="            self._effects.append(Append(self._append, puts))",
        wrong=(
            "            self._effects.append(Append(self._append, puts))\n"
            "            for conn, put in self._group:\n"
            "                last = put.records[-1].header.replica_seq\n"
            "                at = Sample(1, bytes(32))\n"
            "                ack = PutResult(put.ns_no, last, at, 1)\n"
            "                self._sessions[conn].put_done(ack)"
        ),
        tests=("tests/relay/test_core.py",),
    ),
    Mutation(
        name="relay-takes-an-uncertain-commit-for-one-that-stored-nothing",
        path="relay/effects.py",
        right="return cls(StorageUncertainError.code)",
        wrong="return cls(StorageBusyError.code)",
        tests=("tests/relay/test_effects.py",),
    ),
    Mutation(
        name="relay-commits-without-a-sync",
        path="relay/storage/sqlite/connection.py",
        right='connection.pragma("synchronous", "full")',
        wrong='connection.pragma("synchronous", "normal")',
        tests=("tests/relay/storage",),
    ),
    Mutation(
        name="gap-in-a-stream-is-accepted",
        path="relay/storage/rules.py",
        right="if header.replica_seq != standing.max_seq + 1:",
        wrong="if header.replica_seq <= standing.max_seq:",
        tests=("tests/relay/storage",),
    ),
    Mutation(
        name="fork-of-a-record-is-taken-for-the-record",
        path="relay/storage/sqlite/appending.py",
        right="if record_id != record.record_id:",
        wrong="if not record_id:",
        tests=("tests/relay/storage",),
    ),
    Mutation(
        name="snapshot-covers-what-came-meanwhile",
        path="relay/storage/sqlite/appending.py",
        right='"last": ns.ns_no << SEQ_BITS | until,',
        wrong='"last": ns.ns_no << SEQ_BITS | ns.head - 1,',
        tests=("tests/relay/storage",),
    ),
    Mutation(
        name="reader-with-a-hole-is-sent-a-frame-of-all",
        path="crdtmem/protocol/downloads.py",
        right="                    and self.holes.isdisjoint(frame.covered_tags)",
        wrong="                    and self._part_bytes",
        tests=("tests/protocol", "tests/relay/test_core_schedules.py"),
    ),
    Mutation(
        name="frames-queue-for-a-slow-reader",
        path="crdtmem/protocol/server.py",
        right="        if self._is_sending or self._state is not State.OPEN:",
        wrong="        if self._state is not State.OPEN:",
        tests=("tests/protocol", "tests/relay/test_core.py"),
    ),
    Mutation(
        name="token-is-compared-by-its-beginning",
        path="relay/auth.py",
        right="hmac.compare_digest(digest_of(secret), digest)",
        wrong="hmac.compare_digest(digest_of(secret)[:1], digest[:1])",
        tests=("tests/relay/test_auth.py",),
    ),
    Mutation(
        name="cursor-is-committed-before-its-effects",
        path="crdtmem/store/intake.py",
        right="        intake.take_all()\n        for doc in ready_docs",
        wrong=(
            "        move_cursor(transaction.connection, intake.link, places)\n"
            '        transaction.connection.execute("COMMIT; BEGIN IMMEDIATE")\n'
            "        intake.take_all()\n        for doc in ready_docs"
        ),
        tests=("tests/test_simulator.py",),
    ),
    Mutation(
        name="update-is-sealed-while-a-state-is-due",
        path="crdtmem/store/outbox.py",
        right=(
            "        if marked:\n            if not may_seal_states:\n"
            "                return 0"
        ),
        wrong="        if marked and may_seal_states:",
        tests=("tests/store/test_outbox.py",),
    ),
    Mutation(
        name="outbox-is-kept-by-a-new-stream",
        path="crdtmem/store/rejoin.py",
        right='"DELETE FROM outbox WHERE link = :link", {"link": link.link}',
        wrong='"SELECT :link", {"link": link.link}',
        tests=("tests/store/test_rejoin.py", "tests/test_simulator.py"),
    ),
    Mutation(
        name="row-that-the-relay-has-not-acknowledged-is-squashed",
        path="crdtmem/store/log.py",
        right=" AND link.replica = log.replica AND log.replica_seq > link.acked_seq))",
        wrong=" AND link.replica = log.replica AND log.replica_seq < 0))",
        tests=("tests/store",),
    ),
    Mutation(
        name="relays-chain-is-not-verified",
        path="crdtmem/protocol/client_namespaces.py",
        right="if namespace.chain != records.chain:",
        wrong="if not records.chain:",
        tests=("tests/protocol",),
    ),
]
