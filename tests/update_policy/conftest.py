"""The small base model, policies and rollouts of the learner's tests."""

from tests.core.learner.conftest import base, make_policy, make_rollouts

__all__ = ["base", "make_policy", "make_rollouts"]
