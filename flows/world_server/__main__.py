"""The old name of `loopline serve`."""

from flows.moved import moved

moved("serve")
