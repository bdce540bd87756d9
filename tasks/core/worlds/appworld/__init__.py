"""AppWorld for real: the package's own engine, on the official data or on scenarios of our own in its layout."""
