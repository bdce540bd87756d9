"""Adding up the cost of answers."""

from collections.abc import Sequence

from tasks.core.config.chat_api import Traffic
from tasks.core.engines.chat_api.paid_answers import PaidAnswer
from tasks.core.records.scores import ApiUsage


class Spending:
    """Totals since they were last taken. Only the provider knows the tokens of failed attempts.

    Each answer counts once, no matter which attempt at the stage paid for it: a result does not show how it was
    obtained.
    """

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self._paid: list[PaidAnswer] = []
        self._paid_earlier: list[PaidAnswer] = []

    def add(self, paid: PaidAnswer, earlier: bool) -> None:
        """Count an answer; `earlier` says that a previous attempt paid for it."""
        (self._paid_earlier if earlier else self._paid).append(paid)

    def take(self) -> ApiUsage:
        """Return the totals and reset them to 0. Prints how much an earlier attempt had paid for, if anything."""
        usage = self._usage(self._paid + self._paid_earlier)
        if self._paid_earlier:
            print(f"chat_api: {self.said()}")
        self._paid, self._paid_earlier = [], []
        return usage

    def said(self) -> str:
        """Return the totals in words."""
        earlier = self._usage(self._paid_earlier)
        totals = _in_words(self._usage(self._paid + self._paid_earlier))
        return totals + (f"; an earlier attempt had paid for {_in_words(earlier)} of it" if earlier.answers else "")

    def _usage(self, paid: Sequence[PaidAnswer]) -> ApiUsage:
        answers = [paid_answer.answer for paid_answer in paid]
        prompt = sum(answer.prompt_tokens for answer in answers)
        cached = sum(answer.cached_tokens for answer in answers)
        sampled = sum(answer.answer_tokens for answer in answers)
        return ApiUsage(
            models=tuple(sorted({answer.model for answer in answers if answer.model})),
            answers=len(answers),
            retries=sum(paid_answer.attempts - 1 for paid_answer in paid),
            prompt_tokens=prompt,
            cached_tokens=cached,
            answer_tokens=sampled,
            cost_usd=self._traffic.cost_usd(prompt - cached, cached, sampled),
        )


def _in_words(usage: ApiUsage) -> str:
    tokens = f"{usage.prompt_tokens:,} prompt and {usage.answer_tokens:,} answer tokens"
    return f"{usage.answers:,} answers, {tokens}, {usage.cost_usd:,.2f} USD"
