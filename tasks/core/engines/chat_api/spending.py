"""Adding up what answers cost."""

from collections.abc import Sequence

from tasks.core.config.chat_api import Traffic
from tasks.core.engines.chat_api.paid_answers import PaidAnswer
from tasks.core.records.scores import ApiUsage


class Spending:
    """Totals since they were last taken. Tokens of attempts that failed are known to the provider alone.

    Each answer counts once, whichever attempt at the stage paid for it: a result does not show how it was come by.
    """

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self._paid: list[PaidAnswer] = []
        self._paid_earlier: list[PaidAnswer] = []

    def add(self, paid: PaidAnswer, earlier: bool) -> None:
        """Count an answer; `earlier`: it was paid for by an attempt before this one."""
        (self._paid_earlier if earlier else self._paid).append(paid)

    def take(self) -> ApiUsage:
        """The totals; they start again at 0. Prints how much of it an earlier attempt had paid for, if it had."""
        usage = self._usage(self._paid + self._paid_earlier)
        if self._paid_earlier:
            print(f"chat_api: {self.said()}")
        self._paid, self._paid_earlier = [], []
        return usage

    def said(self) -> str:
        """The totals in words."""
        earlier = self._usage(self._paid_earlier)
        told = _in_words(self._usage(self._paid + self._paid_earlier))
        return told + (f"; an earlier attempt had paid for {_in_words(earlier)} of it" if earlier.answers else "")

    def _usage(self, paid: Sequence[PaidAnswer]) -> ApiUsage:
        answers = [one.answer for one in paid]
        prompt = sum(answer.prompt_tokens for answer in answers)
        cached = sum(answer.cached_tokens for answer in answers)
        sampled = sum(answer.answer_tokens for answer in answers)
        return ApiUsage(
            models=tuple(sorted({answer.model for answer in answers if answer.model})),
            answers=len(answers),
            retries=sum(one.attempts - 1 for one in paid),
            prompt_tokens=prompt,
            cached_tokens=cached,
            answer_tokens=sampled,
            cost_usd=self._traffic.cost_usd(prompt - cached, cached, sampled),
        )


def _in_words(usage: ApiUsage) -> str:
    tokens = f"{usage.prompt_tokens:,} prompt and {usage.answer_tokens:,} answer tokens"
    return f"{usage.answers:,} answers, {tokens}, {usage.cost_usd:,.2f} USD"
