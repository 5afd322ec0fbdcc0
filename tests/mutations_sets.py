"""Known bugs of memory sets: items of another key, and what merges must not lose."""

from tests.mutation import Mutation

__all__ = ["SETS_MUTATIONS"]

SETS_MUTATIONS = [
    Mutation(
        name="adapter-works-on-the-present-key",
        path="crdtmem/compat/flink/adapter.py",
        right="        items = bound_items(memory_set)\n",
        wrong=(
            "        items = bound_items(memory_set)\n"
            "        if items is not None and self._current is not None:\n"
            "            bound = self._bound(self._current[0], no_owner_check)\n"
            "            items = bound.memory_set(items.name)\n"
        ),
        tests=("tests/sets/test_sets_races.py",),
    ),
    Mutation(
        name="adapter-rebuilds-sets-of-other-keys-than-strings",
        path="crdtmem/compat/flink/binding.py",
        right="about._asdict() if type(about.partition_key) is str else {}\n",
        wrong="about._replace(partition_key=str(about.partition_key))._asdict()\n",
        tests=("tests/compat/test_flink_binding.py",),
    ),
    Mutation(
        name="adapter-keeps-the-key-before-a-bad-one",
        path="crdtmem/compat/flink/adapter.py",
        right="        self._current = None\n        self._switch(Context(",
        wrong="        self._switch(Context(",
        tests=("tests/compat/test_flink.py",),
    ),
    Mutation(
        name="binding-travels-with-pickle",
        path="crdtmem/compat/flink/binding.py",
        right="            return _unbound, (set_type, self.name)\n",
        wrong="            return self.__copy__, ()\n",
        tests=("tests/compat/test_flink_binding.py",),
    ),
    Mutation(
        name="suppressed-action-is-recorded",
        path="crdtmem/sets/observing.py",
        right="        or binding.observation_suppressed\n",
        wrong="",
        tests=("tests/compat/test_flink_binding.py",),
    ),
    Mutation(
        name="empty-key-is-no-key",
        path="crdtmem/sets/binding.py",
        right="    encoded = encode_key(partition_key)\n",
        wrong='    encoded = encode_key(partition_key or "a")\n',
        tests=("tests/sets/test_sets_races.py",),
    ),
    Mutation(
        name="id-is-looked-for-in-all-sets",
        path="crdtmem/store/sets.py",
        right='        " WHERE doc = :doc AND item.id = wanted.value",\n',
        wrong='        " WHERE :doc AND item.id = wanted.value",\n',
        tests=("tests/compat/test_flink.py",),
    ),
    Mutation(
        name="update-takes-the-name-of-what-it-replaces",
        path="crdtmem/store/set_write.py",
        right="        is_first = put.is_made and put.id not in newest and MADE_ID",
        wrong="        is_first = MADE_ID",
        tests=("tests/store/test_set_write.py", "tests/store/test_set_inbox.py"),
    ),
    Mutation(
        name="summary-of-what-has-changed-is-taken",
        path="crdtmem/sets/compacting.py",
        right="if all(now.get(i) == self._base[i] for i in one.sources)\n",
        wrong="if all(i in self._base for i in one.sources)\n",
        tests=("tests/sets/test_sets_processes.py",),
    ),
    Mutation(
        name="compaction-is-committed-in-two-parts",
        path="crdtmem/store/set_write.py",
        right="    write_members(transaction, base.doc, document, parts, commit)\n",
        wrong=(
            "    write_members(transaction, base.doc, document, parts, commit)\n"
            '    transaction.connection.execute("COMMIT; BEGIN IMMEDIATE")\n'
        ),
        tests=("tests/sets/test_sets_processes.py",),
    ),
    Mutation(
        name="originals-of-a-summary-are-not-archived",
        path="crdtmem/store/set_write.py",
        right="    if change.archive is not None:\n",
        wrong="    if change.archive is None:\n",
        tests=("tests/sets/test_compacting.py", "tests/store/test_set_write.py"),
    ),
    Mutation(
        name="living-claim-of-another-process-is-taken",
        path="crdtmem/store/set_write.py",
        right='        " WHERE until_ms <= :now OR process = :process",\n',
        wrong='        " WHERE :now >= 0 OR process = :process",\n',
        tests=("tests/sets/test_sets_processes.py",),
    ),
]
