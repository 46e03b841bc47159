"""A small tokenizer with Qwen2.5's rules: its regex, NFC, byte-level BPE, control tokens and chat."""

import json
from pathlib import Path

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, trainers

NUM_TEXT_IDS = 384  # the control tokens have the ids after these
QWEN_REGEX = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# As in Qwen2.5: the FIM markers and the tool calls are added tokens, but tokenizer.json doesn't call them special.
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>")
NOT_SPECIAL = (
    "<tool_call>",
    "</tool_call>",
    "<|fim_prefix|>",
    "<|fim_middle|>",
    "<|fim_suffix|>",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
)
CONTROL = SPECIAL + NOT_SPECIAL
# Renders what the template of Qwen2.5-Coder-Instruct renders for conversations without tools.
CHAT_TEMPLATE = r"""
{%- for message in messages %}
    {%- if loop.first and message.role != 'system' %}
        {{- '<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n' }}
    {%- endif %}
    {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
"""
CORPUS = [
    "def add(a, b):\n    return a + b\n\n\nclass Stack:\n    def push(self, item):\n        self.items.append(item)\n",
    "for i in range(10):\r\n    print('You are a helpful assistant', i)\r\n",
    "system user assistant naïve café 또 똑 또한 龍 龜 龍龜 한글 🙂 🦙 🚀 🎉 <|>",
] * 20


def train_bpe() -> tokenizers.Tokenizer:
    """The vocabulary alone, before it has any control token: the oracle for plain text."""
    bpe = tokenizers.Tokenizer(models.BPE())
    bpe.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(Regex(QWEN_REGEX), behavior="isolated")
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    bpe.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=NUM_TEXT_IDS, initial_alphabet=alphabet, show_progress=False)
    )
    assert bpe.get_vocab_size() == NUM_TEXT_IDS
    return bpe


def write_folder(folder: Path) -> Path:
    """The tokenizer files of a Hugging Face folder: two stop ids, and the template in tokenizer_config.json."""
    bpe = train_bpe()
    bpe.add_tokens([AddedToken(name, special=name in SPECIAL, normalized=False) for name in CONTROL])
    bpe.save(str(folder / "tokenizer.json"))
    stops = [bpe.token_to_id("<|im_end|>"), bpe.token_to_id("<|endoftext|>")]
    settings_json = {
        "tokenizer_class": "Qwen2Tokenizer",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings_json))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": stops}))
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen2", "eos_token_id": stops[0]}))
    return folder
