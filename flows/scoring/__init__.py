"""`loopline score`: any model on any world's split, without training, by the stages' own core."""
