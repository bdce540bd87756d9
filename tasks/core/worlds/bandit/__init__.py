"""RAGEN's two-armed bandit: one pull, and two names that hint at what the arms pay.

No kept environment has it (textarena's is another game); it is a dozen lines.
"""
