"""WebShop (arXiv 2207.01206): search a catalogue, read pages, pick options, buy.

No package provides its engine or its data. Search uses bm25s with the original's Lucene weights (k1 0.9, b 0.4): it
needs only numpy, and tantivy fixes k1 and b.
"""
