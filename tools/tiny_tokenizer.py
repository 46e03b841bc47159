"""The tokenizer of tiny-coder: a byte-level BPE of 4096 entries that is Qwen2.5's in every way but its size.

NFC, Qwen2's pre-tokenizer pattern, Qwen2.5's names of special tokens (placed after the BPE entries) and its chat
template, with a default system text of our own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

VOCAB_SIZE = 4096
MAX_POSITIONS = 2048
END_OF_TEXT, IM_START, IM_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
FIM_PREFIX, FIM_MIDDLE, FIM_SUFFIX, FIM_PAD = "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>"
REPO_NAME, FILE_SEP = "<|repo_name|>", "<|file_sep|>"
TOOL_CALL, TOOL_CALL_END = "<tool_call>", "</tool_call>"
SPECIAL_TOKENS = (
    *(END_OF_TEXT, IM_START, IM_END, TOOL_CALL, TOOL_CALL_END),
    *(FIM_PREFIX, FIM_MIDDLE, FIM_SUFFIX, FIM_PAD, REPO_NAME, FILE_SEP),
)
# As in Qwen2.5, only these three are hidden by skip_special_tokens.
HIDDEN_TOKENS = frozenset({END_OF_TEXT, IM_START, IM_END})
SYSTEM_TEXT = "You are a small Python coder."
QWEN2_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CHAT_TEMPLATE = r"""{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'SYSTEM_TEXT' }}
    {%- endif %}
    {{- "\n\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided with function signatures within <tools></tools> XML tags:\n<tools>" }}
    {%- for tool in tools %}
        {{- "\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\n</tools>\n\nFor each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call><|im_end|>\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\n' + messages[0]['content'] + '<|im_end|>\n' }}
    {%- else %}
        {{- '<|im_start|>system\nSYSTEM_TEXT<|im_end|>\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}
            {{- '\n' + message.content }}
        {%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {{- '\n<tool_call>\n{"name": "' }}
            {{- tool_call.name }}
            {{- '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}
            {{- '}\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\n<tool_response>\n' }}
        {{- message.content }}
        {{- '\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
""".replace(  # noqa: E501  (the text of Qwen2.5, line by line)
    "SYSTEM_TEXT", SYSTEM_TEXT
)


def train_tokenizer(texts: Iterable[str], vocab_size: int = VOCAB_SIZE) -> Tokenizer:
    """A byte-level BPE of `vocab_size` entries, the special tokens (the last ids) among them."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(Regex(QWEN2_PATTERN), "isolated")
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, to_bytes])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    entries = vocab_size - len(SPECIAL_TOKENS)
    trainer = trainers.BpeTrainer(vocab_size=entries, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens([added_token(token) for token in SPECIAL_TOKENS])
    return tokenizer


def added_token(token: str) -> AddedToken:
    """A special token as Qwen2.5 declares it."""
    return AddedToken(token, normalized=False, special=token in HIDDEN_TOKENS)


def special_ids(tokenizer: Tokenizer) -> dict[str, int]:
    """The ids of the special tokens. Raises KeyError when the tokenizer lacks one."""
    ids = {}
    for token in SPECIAL_TOKENS:
        token_id = tokenizer.token_to_id(token)
        if token_id is None:
            raise KeyError(f"the tokenizer has no {token}")
        ids[token] = token_id
    return ids


def write_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Writes tokenizer.json, tokenizer_config.json and generation_config.json as Qwen2.5 spells them."""
    folder.mkdir(parents=True, exist_ok=True)
    ids = special_ids(tokenizer)
    tokenizer.save(str(folder / "tokenizer.json"))
    flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
    added = {
        str(token_id): {"content": token, **flags, "special": token in HIDDEN_TOKENS} for token, token_id in ids.items()
    }
    config: dict[str, Any] = {
        "add_bos_token": False,
        "add_prefix_space": False,
        "added_tokens_decoder": added,
        "additional_special_tokens": [IM_START, IM_END],
        "bos_token": None,
        "chat_template": CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "eos_token": END_OF_TEXT,
        "errors": "replace",
        "model_max_length": MAX_POSITIONS,
        "pad_token": END_OF_TEXT,
        "split_special_tokens": False,
        "tokenizer_class": "Qwen2Tokenizer",
        "unk_token": None,
    }
    generation = {
        "do_sample": False,
        "eos_token_id": [ids[END_OF_TEXT], ids[IM_END]],
        "max_new_tokens": 256,
        "pad_token_id": ids[END_OF_TEXT],
    }
    write_json(folder / "tokenizer_config.json", config)
    write_json(folder / "generation_config.json", generation)


def write_json(path: Path, value: object) -> None:
    """Writes indented UTF-8 JSON that ends in a line feed."""
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
