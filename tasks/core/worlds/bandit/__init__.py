"""RAGEN's two-armed bandit: one pull, and two names that hint at what the arms pay.

It is a dozen lines here because no maintained environment has it (textarena's is a different game).
"""
