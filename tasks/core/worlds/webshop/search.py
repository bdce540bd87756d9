"""The shop's search engine: BM25 over the catalogue, by bm25s.

Unlike the original's Pyserini, whose analyser stems words (Porter) and drops stop words, it matches words exactly as
written.
"""

import re
from collections.abc import Iterable

import numpy as np

K1, B = 0.9, 0.4
"""Parameters of Pyserini's LuceneSearcher, which the original uses."""
RESULTS = 50
LONGEST_QUERY = 300
"""Maximum characters of a query that are used."""
_WORD = re.compile(r"[a-z0-9]+")


class SearchEngine:
    """An index of texts. On equal scores the earlier text comes first. Thread-safe."""

    def __init__(self, texts: Iterable[str]) -> None:
        import bm25s

        words: dict[str, int] = {}
        ids = [[words.setdefault(word, len(words)) for word in _WORD.findall(text)] for text in texts]
        self._words, self._count = words, len(ids)
        self._index = bm25s.BM25(method="lucene", k1=K1, b=B)
        self._index.index((ids, words), show_progress=False)

    def search(self, query: str) -> list[int]:
        """Return the numbers of the RESULTS best texts; fewer if fewer share a word with the query."""
        ids = [self._words[word] for word in _WORD.findall(query[:LONGEST_QUERY].lower()) if word in self._words]
        if not ids:
            return []
        scores = self._index.get_scores_from_ids(ids)
        best = min(RESULTS, self._count)
        least = np.partition(scores, self._count - best)[self._count - best]
        numbers = np.flatnonzero(scores >= max(least, np.finfo(np.float32).tiny))
        return [int(number) for number in numbers[np.argsort(-scores[numbers], kind="stable")][:best]]
