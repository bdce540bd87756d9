"""Games that a turn of text plays, as in RAGEN: answers in tags, several actions a turn, rewards per turn.

What the worlds Bandit, FrozenLake, Sokoban and WebShop share. They run no code of the agent's: its text is only read.
"""
