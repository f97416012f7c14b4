"""Texts → counts of words, pairs of words and character n-grams, as sparse matrices.

Character n-grams lie within words. They are therefore found once per different word of a block, and the counts of a
text are those of its words, added up by a product of two sparse matrices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import CountVectorizer

WORD_NGRAMS = (1, 2)
CHARACTER_NGRAMS = (3, 5)
CHUNK_CHARACTERS = 2_000_000
"""So many characters of text are counted at once, which bounds the memory."""


def chunks_of(texts: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the first place and the place after the last of runs of texts, each of a bounded number of characters."""
    ends = np.cumsum([len(text) + 1 for text in texts])
    start = 0
    while start < len(texts):
        before = ends[start - 1] if start else 0
        end = max(start + 1, int(np.searchsorted(ends, before + CHUNK_CHARACTERS, side="right")))
        yield start, end
        start = end


def count_words(texts: Sequence[str], vocabulary: dict[str, int] | None = None) -> tuple[sp.csr_array, Sequence[str]]:
    """Count words and pairs of words, of a vocabulary or all; return the counts, and all terms without a vocabulary."""
    return _count(CountVectorizer(ngram_range=WORD_NGRAMS, vocabulary=vocabulary, dtype=np.float32), texts)


def count_characters(
    texts: Sequence[str], vocabulary: dict[str, int] | None = None
) -> tuple[sp.csr_array, Sequence[str]]:
    """Count the character n-grams; the same as `CountVectorizer(analyzer="char_wb")`, faster where words repeat."""
    by_word, words = _count(CountVectorizer(token_pattern=r"\S+", dtype=np.float32), texts)
    options: dict[str, Any] = {"analyzer": "char_wb", "ngram_range": CHARACTER_NGRAMS, "dtype": np.float32}
    by_term, terms = _count(CountVectorizer(vocabulary=vocabulary, **options), words)
    return sp.csr_array(by_word @ by_term), terms


def _count(vectorizer: CountVectorizer, texts: Sequence[str]) -> tuple[sp.csr_array, Sequence[str]]:
    nothing = _as_array(sp.csr_matrix(np.zeros((len(texts), 0), dtype=np.float32)))
    if vectorizer.vocabulary is not None:
        return (_as_array(vectorizer.transform(texts)) if vectorizer.vocabulary else nothing), []
    try:
        counts = _as_array(vectorizer.fit_transform(texts))
    except ValueError:  # no text holds a term
        return nothing, []
    return counts, vectorizer.get_feature_names_out().tolist()


def _as_array(counts: sp.csr_matrix) -> sp.csr_array:
    return sp.csr_array(counts)
