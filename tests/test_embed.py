"""crdtmem.embed: the embedder of the tests, and what any must be."""

from math import isclose

import pytest

from crdtmem.embed import Embedder, HashEmbedder
from crdtmem.errors import InvalidArgumentError


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def test_texts_are_alike_as_far_as_they_have_words_in_common():
    embedder: Embedder = HashEmbedder()
    car, cars, auto, nothing = embedder.embed(
        ["a red car", "the red CAR", "automobile", "!?"], "document"
    )

    assert {len(vector) for vector in (car, cars, auto, nothing)} == {embedder.dim}
    assert isclose(cosine(car, car), 1)
    assert cosine(car, cars) > embedder.floor > abs(cosine(car, auto))
    assert nothing == [0.0] * 64


def test_an_alias_counts_as_the_other_word():
    embedder = HashEmbedder(aliases={"automobile": "car"})
    car, auto = embedder.embed(["car", "Automobile"], "query")

    assert car == auto


def test_a_word_goes_where_its_hash_says():
    # SHA-256 of "car" begins with 2b2961a4, a multiple of ten, and the odd 31.
    (vector,) = HashEmbedder(dim=10).embed(["car"], "query")

    assert vector == [-1.0, *[0.0] * 9]


@pytest.mark.parametrize("dim", [0, 4_097])
def test_a_vector_has_some_numbers_and_not_too_many(dim):
    with pytest.raises(InvalidArgumentError) as caught:
        HashEmbedder(dim=dim)

    assert f"between 1 and 4096, not {dim}" in caught.value.message
