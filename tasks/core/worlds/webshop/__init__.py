"""WebShop (arXiv 2207.01206): search a catalogue, read pages, pick options, buy. No package has its engine or its data.

Search: bm25s with the original's Lucene weights (k1 0.9, b 0.4). It takes numpy alone; tantivy fixes k1 and b.
"""
