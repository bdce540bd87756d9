"""The command `loopline`: what it takes and how it ends. Its modules import the work late, so that help is quick."""
