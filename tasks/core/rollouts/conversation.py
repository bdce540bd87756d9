"""An episode as the policy meets it: messages, and the ids that its next turn goes on from."""

from collections.abc import Callable, Sequence

from tasks.core.interfaces.engine import Generation, GenerationRequest, SamplingSettings
from tasks.core.interfaces.world import Message, Observation
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.rollouts.live_rollout import LiveRollout
from tasks.core.rollouts.observation import shown_observation
from tasks.core.rollouts.play_settings import PlaySettings


class Conversation:
    """The conversation of one attempt at a rollout; the turns that it is given go into the rollout's transcript."""

    def __init__(
        self,
        rollout: LiveRollout,
        chat: ChatFormat,
        settings: PlaySettings,
        opening: list[Message],
        text_of: Callable[[Sequence[int]], str],
    ) -> None:
        """`text_of`: what of a turn's ids the world is given, as text."""
        self._rollout, self._chat, self._settings, self._text_of = rollout, chat, settings, text_of
        self._messages = list(opening)
        self._context = chat.prompt_ids(opening)
        self._turn_closed = False

    def next_turn(self) -> GenerationRequest:
        """The request for the policy's next turn."""
        rollout, settings = self._rollout, self._settings
        temperature = rollout.planned.temperature or settings.temperature
        return GenerationRequest(
            rollout.name,
            rollout.transcript.token_ids + self._context,
            SamplingSettings(
                temperature,
                settings.limits.max_tokens_per_turn,
                self._chat.stop_ids,
                top_k=settings.top_k,
                top_p=settings.top_p,
            ),
            rollout.seed("turn", rollout.transcript.played_turns),
            rollout.planned.task.task_id,
            tuple(self._messages),
        )

    def add_turn(self, generation: Generation) -> str:
        """Append what stays of a sampled turn (see `ChatFormat.kept_ids`). Returns what the world is given."""
        ids = self._chat.kept_ids(generation.token_ids)
        self._rollout.transcript.add_turn(ids, generation.logprobs[: len(ids)])
        self._turn_closed = self._chat.closes(ids)
        text = self._text_of(ids)
        self._messages.append({"role": "assistant", "content": text})
        return text

    def add_observation(self, observation: Observation) -> None:
        """Append what the world said to the last turn, cut to the budget of an observation."""
        limit = self._settings.limits.max_observation_tokens
        shown = shown_observation(
            self._chat, observation.text, observation.ending, closed=self._turn_closed, max_tokens=limit
        )
        self._messages.append({"role": "user", "content": shown.text})
        self._context = shown.ids
