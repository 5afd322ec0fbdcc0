"""What tests of encrypted namespaces share: keys, and a relay that lies."""

from crdtmem.protocol.messages import Form, Item
from crdtmem.protocol.records import chain_next, parse_header, record_id
from crdtmem.store.holding import held_codes
from crdtmem.store.intake import apply_items
from crdtmem.store.link_status import link_reports
from tests.sync.sites import REMOTE

__all__ = [
    "ONE",
    "TWO",
    "codes_of",
    "content_of",
    "delivered",
    "key_ids",
    "reconnect",
    "report_of",
    "with_bit",
]

ONE = {1: b"1" * 32}
TWO = {**ONE, 2: b"2" * 32}


def reconnect(*sites):
    for one in sites:
        one.relay.cut(one)
    for one in sites:
        one.connect()
    sites[0].relay.run()


def report_of(site):
    with site.store.reading() as connection:
        (report,) = link_reports(connection)
    return report


def key_ids(relay):
    return [parse_header(row.record).key_id for row in relay.rows(REMOTE)]


def codes_of(site):
    with site.store.reading() as connection:
        return held_codes(connection, site.stored)


def delivered(site, *records):
    """Give a site records as a relay would that does what it likes."""
    link = site.stored
    items = [Item(Form.FULL, record, record_id(REMOTE, record)) for record in records]
    seq, chain = link.cursor.seq, link.cursor.chain
    for number, item in enumerate(items, seq + 1):
        chain = chain_next(chain, number, item.record_id)
    return apply_items(site.store, link, seq + 1, items, chain)


def content_of(site):
    return {
        slot.label: str(slot.content)
        for slot in site.memory.slots("project", templates=False)
    }


def with_bit(record, place, bit=0):
    changed = bytearray(record)
    changed[place] ^= 1 << bit
    return bytes(changed)
