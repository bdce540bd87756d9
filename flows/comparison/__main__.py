"""The old name of `loopline compare`."""

from flows.moved import moved

moved("compare")
