"""crdtmem.store.requests"""

import pytest

from crdtmem.limits import REQUEST_KEPT_MS, REQUEST_ROWS, REQUESTS_PRUNED_ROWS
from crdtmem.store.requests import StoredRequest, find_request, keep_request

REQUEST = StoredRequest(b"fingerprint", "append", '{"rev": 1}')
NOW_MS = 10**12
OLD_MS = NOW_MS - REQUEST_KEPT_MS


def fill(connection, rows, at_ms):
    connection.execute(
        "INSERT INTO request WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL"
        " SELECT i + 1 FROM n WHERE i < :rows)"
        " SELECT i, 'r' || i, x'', 'append', :at_ms, '{}' FROM n",
        {"rows": rows, "at_ms": at_ms},
    )


def numbers(connection):
    return connection.execute("SELECT min(number), count(*) FROM request").get


def test_a_kept_request_is_found_by_its_id(store):
    with store.writing() as transaction:
        keep_request(transaction.connection, "r", REQUEST, NOW_MS)
    with store.reading() as connection:
        found = find_request(connection, "r"), find_request(connection, "s")

    assert found == (REQUEST, None)


def test_a_write_drops_at_most_a_hundred_of_the_oldest(store):
    with store.writing() as transaction:
        connection = transaction.connection
        fill(connection, REQUEST_ROWS + 250, OLD_MS - 1)
        found = []
        for number in range(4):
            keep_request(connection, f"new {number}", REQUEST, NOW_MS)
            found.append(numbers(connection))

    pruned = REQUESTS_PRUNED_ROWS
    assert pruned == 100
    assert found == [
        (pruned + 1, REQUEST_ROWS + 251 - pruned),
        (2 * pruned + 1, REQUEST_ROWS + 252 - 2 * pruned),
        (254, REQUEST_ROWS),
        (255, REQUEST_ROWS),
    ]


@pytest.mark.parametrize("at_ms", [OLD_MS, NOW_MS])
def test_a_request_is_kept_for_seven_days_however_many_there_are(store, at_ms):
    with store.writing() as transaction:
        connection = transaction.connection
        fill(connection, REQUEST_ROWS + 250, at_ms)
        keep_request(connection, "new", REQUEST, NOW_MS)
        found = numbers(connection)

    assert REQUEST_KEPT_MS == 7 * 24 * 3_600 * 1_000
    assert found == (1, REQUEST_ROWS + 251)


def test_the_newest_requests_are_kept_however_old_they_are(store):
    with store.writing() as transaction:
        connection = transaction.connection
        fill(connection, REQUEST_ROWS - 1, 0)
        keep_request(connection, "new", REQUEST, NOW_MS)
        found = numbers(connection)

    assert found == (1, REQUEST_ROWS)
