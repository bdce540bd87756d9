"""The chat format of a base policy: its tokenizer, and the settings of `policy.chat` in its folder.

A folder without the file has the default settings.
"""

import datetime
from pathlib import Path

from pydantic import ValidationError

from tasks.core.config.policy import ChatSettings
from tasks.core.policies.chat_format import ChatFormat
from tasks.core.policies.checkpoint_files import AGAIN, DIGESTS, write_digests
from tasks.core.policies.loading import load_tokenizer
from tasks.core.records.files import ArtifactError, read_json, write_json

CHAT_SETTINGS = "chat_settings.json"


def read_chat_settings(folder: Path) -> ChatSettings:
    """Read the settings. Raises ArtifactError for a damaged file."""
    path = folder / CHAT_SETTINGS
    if not path.is_file():
        return ChatSettings()
    try:
        return ChatSettings.model_validate(read_json(path))
    except ValidationError as error:
        raise ArtifactError(f"{path}: {error.errors()[0]['msg']}; {AGAIN}") from None


def write_chat_settings(folder: Path, settings: ChatSettings, world_date: datetime.date | None) -> None:
    """Write the settings into the folder of a base policy; default settings need no file.

    An unset date becomes `world_date`, the world's own where its clock stands still.
    """
    date = world_date if settings.date is None else settings.date
    chosen = settings.model_copy(update={"date": date if _shows_date(folder) else None})
    if chosen == read_chat_settings(folder):
        return
    (folder / CHAT_SETTINGS).unlink(missing_ok=True)
    if chosen != ChatSettings():
        write_json(folder / CHAT_SETTINGS, chosen.model_dump(mode="json"))
    if (folder / DIGESTS).exists():
        write_digests(folder)


def load_chat_format(folder: Path) -> ChatFormat:
    """Return the chat format of the base policy in `folder`, with its end ids and settings.

    The format is its tokenizer's, with all end ids of its generation_config.json and the settings in the folder. Raises
    ArtifactError when the folder holds no tokenizer, the end ids are no ids or the settings are invalid, and
    ChatTemplateError as ChatFormat does.
    """
    path = folder / "generation_config.json"
    end_ids = read_json(path).get("eos_token_id") if path.is_file() else None
    ids = end_ids if isinstance(end_ids, list) else [] if end_ids is None else [end_ids]
    if not all(isinstance(end, int) for end in ids):
        raise ArtifactError(f"{path}: eos_token_id must be an id or a list of ids, not {end_ids!r}")
    return ChatFormat(load_tokenizer(folder), ids, read_chat_settings(folder))


def _shows_date(folder: Path) -> bool:
    files = [folder / "tokenizer_config.json", *folder.glob("*.jinja")]
    return any("strftime_now" in file.read_text(encoding="utf-8") for file in files if file.is_file())


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
