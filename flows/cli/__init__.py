"""The command `loopline`: a file for each command, whose top imports what is quick alone, so that help is quick."""
