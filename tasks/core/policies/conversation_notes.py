"""Notes for model cards: how a policy's conversations differ from those of its chat template."""

from tasks.core.policies.chat_format import ChatFormat


def conversation_lines(chat: ChatFormat) -> list[str]:
    """Return lines on how the policy's conversations differ from those that its chat template makes by itself."""
    settings, notes = chat.settings, []
    if chat.drops_thoughts:
        notes.append("the thoughts of earlier turns were left out, as the chat template has it")
    elif chat.frame.drops_thoughts:
        notes.append(
            "the thoughts of earlier turns stayed as they were sampled (`policy.chat.earlier_thoughts: kept`), where "
            "the chat template leaves them out: a server that renders each conversation anew shows other prompts"
        )
    if settings.enable_thinking is not None:
        notes.append(f"`enable_thinking` was {str(settings.enable_thinking).lower()}")
    if settings.date is not None:
        notes.append(f"the date that the chat template shows as today's was {settings.date}")
    return ["Its conversations in training:", "", *(f"- {note}" for note in notes), ""] if notes else []
