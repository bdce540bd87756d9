"""ScienceWorld (arXiv 2203.07540): science experiments in a text adventure, on the package's own simulator."""
