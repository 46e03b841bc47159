"""Reading a tokenizer from a Hugging Face folder, and refusing what is missing, broken or not a byte-level BPE."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab_engine.errors import TokenizerError
from lab_engine.tokenizer import Tokenizer
from tests.lab_engine.qwen_like_tokenizer import CONTROL, NUM_TEXT_IDS, write_folder

NUM_IDS = NUM_TEXT_IDS + len(CONTROL)
IM_END = NUM_TEXT_IDS + CONTROL.index("<|im_end|>")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("original"))


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "model"))


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def refusal(folder: Path) -> str:
    with pytest.raises(TokenizerError) as caught:
        Tokenizer.from_hf_folder(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# Files


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    assert f"{folder / name}: cannot be read (No such file or directory)" in refusal(folder)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "generation_config.json"])
@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", "not a JSON file"),
        (b'{"a": ', "not a JSON file"),
        (b"[1]", "found a JSON list"),
        (b"\xff\xfe{", "not UTF-8"),
        (b"[" * 100_000, "not a JSON file"),
    ],
    ids=["empty", "cut off", "a list", "not UTF-8", "nested too deep"],
)
def test_a_broken_file_is_named(folder: Path, name: str, content: bytes, found: str) -> None:
    (folder / name).write_bytes(content)
    assert f"{folder / name}: {found}" in refusal(folder)


def test_a_folder_that_is_not_there_or_is_a_file_is_refused(folder: Path) -> None:
    assert "cannot be read" in refusal(folder / "nowhere")
    assert "cannot be read" in refusal(folder / "config.json")


@pytest.mark.parametrize("name", ["tokenizer.json", "chat_template.jinja", "generation_config.json"])
def test_a_link_out_of_the_folder_is_refused(folder: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "outside").write_text("{}")
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(tmp_path / "outside")
    assert f"{folder / name}: a link to {tmp_path / 'outside'}, outside the folder" in refusal(folder)


@pytest.mark.parametrize("target", ["nowhere", "chat_template.jinja"], ids=["to nothing", "to itself"])
def test_a_link_that_leads_nowhere_is_refused(folder: Path, target: str) -> None:
    (folder / "chat_template.jinja").symlink_to(target)
    assert "chat_template.jinja: cannot be read" in refusal(folder)


def test_a_link_inside_the_folder_and_a_snapshot_of_the_hubs_cache_are_read(original: Path, tmp_path: Path) -> None:
    snapshot, blobs = tmp_path / "snapshots" / "abc", tmp_path / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for path in original.iterdir():
        shutil.copy(path, blobs / f"hash-of-{path.name}")
        (snapshot / path.name).symlink_to(Path("../../blobs") / f"hash-of-{path.name}")
    (snapshot / "chat_template.jinja").symlink_to("generation_config.json")
    assert Tokenizer.from_hf_folder(snapshot).vocab_size == NUM_IDS


# Chat template


def test_the_template_file_goes_before_the_one_in_the_config(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("from the file")
    assert Tokenizer.from_hf_folder(folder).chat_template == "from the file"


@pytest.mark.parametrize(
    ("saved", "expected"),
    [
        (None, None),
        ("text", "text"),
        ([{"name": "tool_use", "template": "x"}, {"name": "default", "template": "y"}], "y"),
    ],
)
def test_a_template_may_be_missing_one_text_or_a_list(folder: Path, saved: Any, expected: str | None) -> None:
    edit(folder / "tokenizer_config.json", chat_template=saved)
    assert Tokenizer.from_hf_folder(folder).chat_template == expected


@pytest.mark.parametrize("saved", [3, {"default": "x"}, [{"name": "tool_use", "template": "x"}], ["x"]])
def test_a_template_of_another_kind_is_refused(folder: Path, saved: Any) -> None:
    edit(folder / "tokenizer_config.json", chat_template=saved)
    assert "tokenizer_config.json: chat_template is a" in refusal(folder)


# Stop tokens


@pytest.mark.parametrize(
    ("generation", "config", "eos", "expected"),
    [
        ([3, 4], 5, None, {3, 4}),
        (3, 5, None, {3}),
        ([], 5, None, set()),
        (None, 5, None, {5}),
        (None, [5, 6], None, {5, 6}),
        (None, None, None, set()),
        (3, None, "<|im_end|>", {3, IM_END}),
        (3, None, {"content": "<|im_end|>", "lstrip": False}, {3, IM_END}),
    ],
)
def test_stop_ids_come_from_generation_config_else_config_and_from_eos_token(
    folder: Path, generation: Any, config: Any, eos: Any, expected: set[int]
) -> None:
    edit(folder / "generation_config.json", eos_token_id=generation)
    edit(folder / "config.json", eos_token_id=config)
    edit(folder / "tokenizer_config.json", eos_token=eos)
    assert Tokenizer.from_hf_folder(folder).stop_token_ids == expected


def test_a_folder_without_generation_config_takes_the_stop_id_of_config(folder: Path) -> None:
    (folder / "generation_config.json").unlink()
    edit(folder / "config.json", eos_token_id=7)
    assert Tokenizer.from_hf_folder(folder).stop_token_ids == {7, IM_END}


@pytest.mark.parametrize("stop", ["x", 1.5, True, [1, None], {"a": 1}])
def test_a_stop_id_that_is_no_integer_is_refused(folder: Path, stop: Any) -> None:
    edit(folder / "generation_config.json", eos_token_id=stop)
    assert "generation_config.json: eos_token_id is" in refusal(folder)


@pytest.mark.parametrize("stop", [-1, NUM_IDS])
def test_a_stop_id_beyond_the_vocabulary_is_refused(folder: Path, stop: int) -> None:
    edit(folder / "generation_config.json", eos_token_id=stop)
    assert f"stop_token_ids: found {stop}, expected ids of 0 to {NUM_IDS - 1}" in refusal(folder)


@pytest.mark.parametrize(("eos", "found"), [("<eos>", "eos_token: found '<eos>'"), (7, "eos_token is 7")])
def test_an_eos_token_that_is_no_added_token_is_refused(folder: Path, eos: Any, found: str) -> None:
    edit(folder / "tokenizer_config.json", eos_token=eos)
    assert found in refusal(folder)


# tokenizer.json


def test_a_saved_truncation_or_padding_does_not_cut_a_prompt(folder: Path) -> None:
    expected = Tokenizer.from_hf_folder(folder).encode("def add(a, b): return a + b")
    truncation = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
    padding = {"strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0}
    padding |= {"pad_type_id": 0, "pad_token": "<|endoftext|>"}
    edit(folder / "tokenizer.json", truncation=truncation, padding=padding)
    assert Tokenizer.from_hf_folder(folder).encode("def add(a, b): return a + b") == expected


def change_vocab(change: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, Any]], Any]:
    return lambda data: change(data["model"]["vocab"])


def rename(vocab: dict[str, Any], old: str, new: str) -> None:
    vocab[new] = vocab.pop(old)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda data: data.pop("added_tokens"), "tokenizer field added_tokens: found nothing, expected list"),
        (lambda data: data.update(model=[]), "tokenizer field model: found a list, expected dict"),
        (lambda data: data["model"].update(type="WordPiece"), "the model is a 'WordPiece', expected a byte-level BPE"),
        (lambda data: data["model"].update(vocab=None), "tokenizer field vocab: found a NoneType, expected dict"),
        (lambda data: data["model"].update(merges=[["a"]]), "the tokenizers library refuses it"),
        (change_vocab(lambda vocab: rename(vocab, "Ġ", "▁")), "no token for byte 0x20"),
        (change_vocab(lambda vocab: rename(vocab, "def", "d▁f")), "a token holds the character '▁'"),
        (change_vocab(lambda vocab: vocab.update({"def": 9000})), "no token has the id"),
        (change_vocab(lambda vocab: vocab.update({"def": 0})), "no token has the id"),
        (change_vocab(lambda vocab: vocab.update({"def": "x"})), "no token has the id"),
        (
            change_vocab(lambda vocab: vocab.update({"<|im_end|>": 9})),
            f"'<|im_end|>' has the ids 9 and {IM_END}, expected one",
        ),
        (lambda data: data["added_tokens"][2].update(id=IM_END + 1), f"no token has the id {IM_END}"),
        (lambda data: data["added_tokens"][2].update(content=""), "the added token '' is empty"),
        (lambda data: data["added_tokens"][2].update(rstrip=True), "'<|im_end|>' has rstrip = true, expected false"),
        (lambda data: data["added_tokens"][2].update(id="9"), "tokenizer field id: found a str, expected int"),
        (lambda data: data["added_tokens"].append("x"), "tokenizer field content: found nothing, expected str"),
        (lambda data: data.update(pre_tokenizer=None), "comes back as"),
        (lambda data: data.update(normalizer={"type": "Lowercase"}), "comes back as 'probe"),
    ],
)
def test_a_tokenizer_json_that_is_no_sound_byte_level_bpe_is_refused(
    folder: Path, change: Callable[[dict[str, Any]], Any], found: str
) -> None:
    data = json.loads((folder / "tokenizer.json").read_text())
    change(data)
    (folder / "tokenizer.json").write_text(json.dumps(data))
    message = refusal(folder)
    assert found in message
    assert message.startswith(f"{folder}: ")


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"tokenizer": None}, "tokenizer field tokenizer: found a NoneType, expected dict"),
        ({"chat_template": 3}, "tokenizer field chat_template: found a int, expected str or NoneType"),
        ({"stop_token_ids": 3}, "tokenizer field stop_token_ids: found a int, expected list"),
        ({"stop_token_ids": ["3"]}, "stop_token_ids: found '3'"),
        ({"special_tokens": []}, "tokenizer field special_tokens: found a list, expected dict"),
        ({"special_tokens": {"eos_token": ["x"]}}, "eos_token: found ['x']"),
    ],
)
def test_a_broken_spec_is_refused_by_field(folder: Path, change: dict[str, Any], found: str) -> None:
    spec = Tokenizer.from_hf_folder(folder).to_spec()
    with pytest.raises(TokenizerError, match=re.escape(found)):
        Tokenizer({**spec, **change})
    for name in spec:
        with pytest.raises(TokenizerError, match=f"tokenizer field {name}: found nothing"):
            Tokenizer({key: value for key, value in spec.items() if key != name})


def test_control_tokens_that_the_vocabulary_lists_too_are_still_no_text(folder: Path) -> None:
    expected = Tokenizer.from_hf_folder(folder)
    data = json.loads((folder / "tokenizer.json").read_text())
    # Only letters, so that the regex doesn't cut it: with ignore_merges the library would find it whole.
    data["added_tokens"].append({**data["added_tokens"][0], "content": "STOP", "id": NUM_IDS})
    data["model"]["vocab"] |= {token["content"]: token["id"] for token in data["added_tokens"]}
    data["model"]["ignore_merges"] = True
    (folder / "tokenizer.json").write_text(json.dumps(data))
    again = Tokenizer.from_hf_folder(folder)
    assert again.vocab_size == NUM_IDS + 1
    assert max(again.encode("STOP" + "".join(CONTROL))) < NUM_TEXT_IDS
    assert again.encode_fim("a", "b") == expected.encode_fim("a", "b")
