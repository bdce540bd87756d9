"""Text games as in RAGEN: answers in tags, several actions per turn, rewards per turn.

Shared by the worlds Bandit, FrozenLake, Sokoban and WebShop. They only read the agent's text and run none of it as
code.
"""
