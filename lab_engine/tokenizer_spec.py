"""The spec: everything a tokenizer needs, as one JSON object, read from a Hugging Face folder.

A .nanoqwen file stores it as its tokenizer section. It has four fields:

    tokenizer       tokenizer.json as it is (vocabulary, merges, added tokens)
    chat_template   Jinja text, or null for a model without one
    stop_token_ids  the ids that end a text
    special_tokens  {"eos_token": "<|im_end|>", ...}: the names that a template may use

Only files of the folder itself are opened: a link that leads elsewhere is refused. The hub's own cache is the one
exception, since there every file of a snapshot is a link into the blobs folder next to it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from lab_engine.errors import TokenizerError


def spec_from_hf_folder(folder: Path) -> dict[str, Any]:
    """The spec of a Hugging Face folder; TokenizerError names the file that is missing or broken.

    tokenizer.json and tokenizer_config.json must be there. chat_template.jinja, where newer versions of transformers
    save the template, goes before the field chat_template of tokenizer_config.json. The stop ids are eos_token_id of
    generation_config.json (an int or a list), else of config.json.
    """
    settings = _read_json(folder, "tokenizer_config.json")
    return {
        "tokenizer": _read_json(folder, "tokenizer.json"),
        "chat_template": _chat_template(folder, settings),
        "stop_token_ids": _stop_token_ids(folder),
        "special_tokens": _special_tokens(folder, settings),
    }


def _chat_template(folder: Path, settings: dict[str, Any]) -> str | None:
    if _is_there(folder, "chat_template.jinja"):
        return _read_text(folder, "chat_template.jinja")
    template = settings.get("chat_template")
    if isinstance(template, list):
        named = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}
        template = named.get("default", named)
    if template is None or isinstance(template, str):
        return template
    raise TokenizerError(
        f"{folder / 'tokenizer_config.json'}: chat_template is a {type(template).__name__}, "
        "expected text or a list with a template named 'default'"
    )


def _stop_token_ids(folder: Path) -> list[int]:
    for name in ("generation_config.json", "config.json"):
        found = _read_json(folder, name).get("eos_token_id") if _is_there(folder, name) else None
        if found is not None:
            ids = found if isinstance(found, list) else [found]
            if not all(type(token_id) is int for token_id in ids):
                raise TokenizerError(f"{folder / name}: eos_token_id is {found!r}, expected an integer or a list")
            return sorted(set(ids))
    return []


def _special_tokens(folder: Path, settings: dict[str, Any]) -> dict[str, str]:
    tokens = {}
    for name, value in settings.items():
        # Older versions of transformers save an object, {"content": "<|im_end|>", "lstrip": false, ...}.
        token = value.get("content") if isinstance(value, dict) else value
        if name in ("bos_token", "eos_token", "unk_token", "pad_token") and token is not None:
            if not isinstance(token, str):
                raise TokenizerError(f"{folder / 'tokenizer_config.json'}: {name} is {value!r}, expected text")
            tokens[name] = token
    return tokens


def _read_json(folder: Path, name: str) -> dict[str, Any]:
    try:
        data = json.loads(_read_text(folder, name))
    except (json.JSONDecodeError, RecursionError) as error:
        raise TokenizerError(f"{folder / name}: not a JSON file ({error})") from None
    if not isinstance(data, dict):
        raise TokenizerError(f"{folder / name}: found a JSON {type(data).__name__}, expected an object")
    return data


def _read_text(folder: Path, name: str) -> str:
    path = folder / name
    try:
        real = path.resolve(strict=True)
        home = folder.resolve()
        in_hub_cache = home.parent.name == "snapshots" and real.parent == home.parent.parent / "blobs"
        if not (real.is_relative_to(home) or in_hub_cache):
            raise TokenizerError(f"{path}: a link to {real}, outside the folder; copy the file into the folder")
        return real.read_text(encoding="utf-8")
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links
        reason = error.strerror if isinstance(error, OSError) else error
        raise TokenizerError(f"{path}: cannot be read ({reason}); is this a Hugging Face folder?") from None
    except UnicodeDecodeError as error:
        raise TokenizerError(f"{path}: not UTF-8 text ({error})") from None


def _is_there(folder: Path, name: str) -> bool:
    # lexists also sees a link that leads nowhere, so that a broken file is reported and not passed over.
    return os.path.lexists(folder / name)
