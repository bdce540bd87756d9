"""The bad habits that are planted in pocketworld's embedded policy, by the words of the paper where it names them.

The recipe's variant `imitation` has none of them.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Habits:
    """Probabilities of bad habits, each drawn independently. All zero: a perfect demonstration."""

    skip_docs: float = 0.6
    """Guess the canonical names instead of reading the docs: the paper's agent learns to consult API documentation."""
    skip_docs_by_app: tuple[tuple[str, float], ...] = (
        ("phone", 0.4),
        ("payments", 0.75),
        ("music", 0.6),
        ("notes", 0.75),
        ("mail", 0.55),
    )
    """The same for tasks whose first app is named here: people trust their memory of some apps more than of others."""
    guess_password: float = 0.45
    """Assume that the password is "dummy", once per demonstration: the paper's placeholder values."""
    give_up: float = 0.65
    """Give up after a failed turn, complete_task(status="fail"): the paper's agent learns to recover from setbacks."""
    finish_early: float = 0.1
    """Complete the task without having done or looked up anything."""
    several_blocks: float = 0.15
    """Put log-in and action into two blocks of one turn; only the first runs: the paper's open-loop control."""
    overlook_block: float = 0.5
    """After several blocks: believe that both ran, which is open-loop control too."""
    forget_clause: float = 0.35
    """Leave out the last of several clauses."""
    wrong_filter: float = 0.1
    """Select by a wrong value, or create with one wrong value."""
    thought: float = 0.6
    """Write a line before the code."""

    def skips(self, app: str) -> float:
        """Return the probability of skipping the docs in a task that begins with `app`."""
        return dict(self.skip_docs_by_app).get(app, self.skip_docs)


IMPERFECT = Habits()
PERFECT = Habits(0, (), 0, 0, 0, 0, 0, 0, 0, thought=0.5)
