"""FrozenLake: gymnasium's own environment (the class of FrozenLake-v1), with RAGEN's text and random goals."""
