"""Turn chat messages into the text that a model was trained on, by the model's own Jinja template.

The template writes control tokens such as <|im_start|> around the messages. A message may spell the same characters,
and must not end a turn by it. So a spelling inside a message is replaced by one private character before rendering:
whatever spells a control token afterwards was written by the template. The tokenizer puts the spelling back as text.

The environment is that of transformers: sandboxed, trim_blocks, lstrip_blocks, and the same three functions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NoReturn

from lab_engine.errors import PromptError, TokenizerError

if TYPE_CHECKING:
    import jinja2

ROLES = ("system", "user", "assistant")
PRIVATE_CHARACTERS = range(0xF0000, 0x10FFFE)  # Unicode's supplementary private use areas


def check_messages(messages: object) -> None:
    """Raise PromptError unless messages is a non-empty list of {"role": one of ROLES, "content": text}."""
    if not isinstance(messages, list) or not messages:
        found = "an empty list" if isinstance(messages, list) else f"a {type(messages).__name__}"
        raise PromptError(f"messages: found {found}, expected a list of one or more messages")
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or set(message) != {"role", "content"}:
            keys = ", ".join(map(str, message)) if isinstance(message, dict) else f"a {type(message).__name__}"
            raise PromptError(f"messages[{index}]: found {keys or 'no keys'}, expected the keys role and content")
        if message["role"] not in ROLES:
            raise PromptError(f"messages[{index}] role: found {message['role']!r}, expected one of {', '.join(ROLES)}")
        if not isinstance(message["content"], str):
            kind = type(message["content"]).__name__
            raise PromptError(f"messages[{index}] content: found a {kind}, expected text")


def hide_spellings(
    messages: Sequence[Mapping[str, str]], spelling: re.Pattern[str], template: str
) -> tuple[list[dict[str, str]], dict[int, str]]:
    """Replace each match of spelling in a content by one private character.

    Returns the changed messages, and the table that `str.translate` undoes it with. The characters chosen appear
    neither in the messages nor in the template.
    """
    everything = template + "".join(message["content"] for message in messages)
    unused = (chr(code) for code in PRIVATE_CHARACTERS if chr(code) not in everything)
    stand_in = dict(zip(sorted(set(spelling.findall(everything))), unused, strict=False))
    hidden = [
        {**message, "content": spelling.sub(lambda match: stand_in[match[0]], message["content"])}
        for message in messages
    ]
    return hidden, {ord(character): text for text, character in stand_in.items()}


def render_chat(template: str, messages: Sequence[Mapping[str, str]], special_tokens: Mapping[str, str]) -> str:
    """The messages as one text that ends where the assistant's answer begins.

    PromptError carries the template's own refusal (raise_exception); TokenizerError says that the template is broken.
    """
    variables: dict[str, Any] = {**special_tokens, "messages": messages, "tools": None, "documents": None}
    try:
        return _compile(template).render(**variables, add_generation_prompt=True)
    except PromptError:
        raise
    except Exception as error:  # noqa: BLE001 - a template is a program of somebody else: it can raise anything
        found = f"{type(error).__name__}: {_one_line(error)}"
        raise TokenizerError(f"chat_template: the model's template is broken ({found})") from None


@lru_cache(maxsize=4)
def _compile(template: str) -> jinja2.Template:
    # Imported here because Jinja makes every start of the program slower, and only a chat needs it.
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment.from_string(template)


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None) -> str:
    # Jinja's own filter escapes <, > and & for HTML.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


def _raise_exception(message: str) -> NoReturn:
    raise PromptError(f"the model's chat template refuses these messages: {_one_line(message)}")


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


def _one_line(message: object) -> str:
    return " ".join(str(message).split())
