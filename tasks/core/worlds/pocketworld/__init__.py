"""AppWorld in miniature: seven small stateful apps behind `apis.<app>.<name>(...)`.

Pure Python, milliseconds per episode. Every task pins a *release* of each app: the names of its calls, parameters and
record fields are drawn from small closed sets of synonyms. So no call can be known by heart: an agent has to read the
docs and use the names it finds there.
"""
