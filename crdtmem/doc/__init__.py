"""Documents: what a slot's or a set's text and meta are, and how they change.

The only package that knows pycrdt. Pure: updates and texts in, updates and texts out;
what is on disk belongs to ``crdtmem.store``. This file imports nothing, because
``crdtmem.doc.text_form`` serves readers that never need pycrdt and its load time.
"""
