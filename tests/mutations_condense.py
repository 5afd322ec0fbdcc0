"""Known bugs of condense: what passes do to others, and what they take out."""

from tests.mutation import Mutation

__all__ = ["CONDENSE_MUTATIONS"]

CONDENSE_MUTATIONS = [
    Mutation(
        name="pass-is-committed-over-what-others-changed",
        path="crdtmem/condense/writing.py",
        right="    if not hit:\n        return",
        wrong="    if hit or not hit:\n        return",
        tests=("tests/condense/test_committing.py",),
    ),
    Mutation(
        name="pass-is-committed-on-a-slot-that-was-made-anew",
        path="crdtmem/condense/committing.py",
        right="        if count_deletions(self.connection, pin):",
        wrong="        if count_deletions(self.connection, pin) < 0:",
        tests=("tests/condense/test_committing.py",),
    ),
    Mutation(
        name="expired-pass-is-committed",
        path="crdtmem/condense/committing.py",
        right="        if self.row.expires_ms <= self.transaction.now_ms:",
        wrong="        if self.row.expires_ms <= 0:",
        tests=("tests/condense/test_committing.py",),
    ),
    Mutation(
        name="second-reply-of-a-pass-is-taken-for-the-first",
        path="crdtmem/condense/committing.py",
        right="        if first is not None and row.reply == self.digest:",
        wrong="        if first is not None:",
        tests=("tests/condense/test_committing.py",),
    ),
    Mutation(
        name="reply-without-the-pass-id-counts",
        path="crdtmem/condense/reply.py",
        right="    if marked_id != pass_id:\n        raise",
        wrong="    if marked_id not in (pass_id, None):\n        raise",
        tests=("tests/condense/test_reply.py",),
    ),
    Mutation(
        name="archive-is-written-after-the-summariser",
        path="crdtmem/condense/beginning.py",
        right="        archive=save_archive(connection, slot.doc, parts, now_ms),",
        wrong="        archive=save_archive(connection, slot.doc, [], now_ms),",
        tests=("tests/condense/test_condense_stress.py",),
    ),
    Mutation(
        name="text-of-a-pass-is-committed-before-its-end",
        path="crdtmem/condense/writing.py",
        right="    transaction = write.writing.transaction\n    after =",
        wrong=(
            "    transaction = write.writing.transaction\n"
            '    transaction.connection.execute("COMMIT; BEGIN IMMEDIATE")\n'
            "    after ="
        ),
        tests=("tests/condense/test_condense_stress.py",),
    ),
    Mutation(
        name="pin-outlives-its-pass",
        path="crdtmem/condense/outcomes.py",
        right="    if row.pin is not None:",
        wrong="    if row.pin is None:",
        tests=("tests/condense/test_condense_stress.py",),
    ),
    Mutation(
        name="squash-forgets-what-a-pin-needs",
        path="crdtmem/store/log.py",
        right="    keep_steps(connection, doc, until)\n",
        wrong="    keep_steps(connection, doc, 0)\n",
        tests=("tests/store/test_pins.py",),
    ),
    Mutation(
        name="state-is-no-step-of-a-pin",
        path="crdtmem/store/states.py",
        right="    keep_state_step(connection, doc, lsn, merged.delta)",
        wrong="    keep_state_step(connection, 0, lsn, merged.delta)",
        tests=("tests/store/test_pins.py",),
    ),
    Mutation(
        name="note-of-a-pass-ends-with-the-store-that-takes-it",
        path="crdtmem/store/inbox.py",
        right="            note=None if condensed is None else write.note,",
        wrong="            note=None,",
        tests=("tests/store/test_condensed.py",),
    ),
    Mutation(
        name="archive-is-of-the-text-before-the-batch",
        path="crdtmem/store/inbox.py",
        right="            file = apply_delta(file, delta)",
        wrong="            file = file or apply_delta(file, delta)",
        tests=("tests/condense/test_condense_machines.py",),
    ),
    Mutation(
        name="known-pass-is-taken-again",
        path="crdtmem/store/condensed.py",
        right='    elif known.state in ("open", "aborted", "expired"):',
        wrong="    elif known.state:",
        tests=("tests/store/test_condensed.py",),
    ),
    Mutation(
        name="undone-pass-is-a-duplicate",
        path="crdtmem/store/condensed.py",
        right="\" AND pass != :pass AND state = 'committed' ORDER BY number\",",
        wrong='" AND pass != :pass ORDER BY number",',
        tests=("tests/store/test_condensed.py",),
    ),
    Mutation(
        name="twins-of-twins-begin-from-different-passes",
        path="crdtmem/store/passes.py",
        right='        " ORDER BY pass LIMIT 1",',
        wrong='        " ORDER BY number DESC LIMIT 1",',
        tests=("tests/condense/test_condense_machines.py",),
    ),
]
