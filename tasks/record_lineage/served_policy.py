"""The class by which MLflow loads a registered policy (`mlflow.pyfunc.load_model`, `mlflow models serve`).

Copied into every model version as it is: it imports nothing of this project, only transformers and peft.
"""

from pathlib import Path
from typing import Any


class ServedPolicy:
    """A causal language model with its adapter. Greedy unless a temperature is given."""

    def __init__(self, folder: Path) -> None:
        """`folder` is the model version; a base model that is not in it is fetched from the Hugging Face hub."""
        import json

        from transformers import AutoModelForCausalLM, AutoTokenizer

        base: dict[str, Any] = json.loads((folder / "base.json").read_text(encoding="utf-8"))
        name = str(folder / base["name"]) if base["inside"] else base["name"]
        self.tokenizer = AutoTokenizer.from_pretrained(name, revision=base["revision"] or "main")
        self.model: Any = AutoModelForCausalLM.from_pretrained(name, revision=base["revision"] or "main")
        if (folder / "adapter_config.json").exists():
            self.model.load_adapter(str(folder))
        self.model.train(False)

    def predict(self, model_input: Any, params: dict[str, Any] | None = None) -> list[str]:
        """The policy's next turn for each value of the column `prompt`, a conversation as the chat template renders it.

        `params`: max_new_tokens and temperature (0: greedy).
        """
        settings = params or {}
        return [self._turn(prompt, **settings) for prompt in model_input["prompt"]]

    def _turn(self, prompt: str, max_new_tokens: int = 128, temperature: float = 0.0) -> str:
        import torch

        ids = self.tokenizer(prompt, add_special_tokens=False, return_tensors="pt")
        sampling = {"do_sample": True, "temperature": temperature} if temperature > 0 else {"do_sample": False}
        with torch.inference_mode():
            output = self.model.generate(**ids, max_new_tokens=max_new_tokens, **sampling)
        asked = self.tokenizer.decode(ids["input_ids"][0], skip_special_tokens=True)
        # SentencePiece takes the blank off the first word that it decodes, so the turn is decoded in its place.
        return str(self.tokenizer.decode(output[0], skip_special_tokens=True))[len(asked) :]


def _load_pyfunc(folder: str) -> ServedPolicy:
    return ServedPolicy(Path(folder))
