"""The corpus rules, the text forms, the prompt rule, and a training run small enough for a test."""

from __future__ import annotations

import dataclasses
import email.parser
import itertools
import json
import lzma
import math
import random
import zipfile
from email.message import Message
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

from tools import (
    tiny_corpus,
    tiny_eval,
    tiny_filter,
    tiny_forms,
    tiny_readme,
    tiny_sources,
    tiny_train,
    train_tiny_coder,
)
from tools.tiny_eval import EvalPrompt
from tools.tiny_filter import SourceFile
from tools.tiny_model import SHAPES, Shape, TinyCoder, initialise
from tools.tiny_tokenizer import (
    END_OF_TEXT,
    IM_END,
    SPECIAL_TOKENS,
    SYSTEM_TEXT,
    VOCAB_SIZE,
    train_tokenizer,
    write_json,
    write_tokenizer,
)


def module(number: int, functions: int = 12) -> str:
    """A made-up module; different numbers share no line with a number in it."""
    body = (
        f'def step_{number}_{i}(value_{number}, scale):\n    """Return value {number} times {i} plus the scale."""\n'
        f"    total_{number} = value_{number} * scale + offset\n    return total_{number} - bias_{i}_{number}\n\n\n"
        for i in range(functions)
    )
    return f"import math_{number}\n\n\n" + "".join(body)


def metadata(**fields: str) -> Message:
    return email.parser.Parser().parsestr(
        "Name: sample\n" + "".join(f"{k.replace('_', '-')}: {v}\n" for k, v in fields.items())
    )


@pytest.mark.parametrize(
    "expression", ["MIT", "Apache-2.0 OR BSD-2-Clause", "(MIT AND PSF-2.0)", "Apache-2.0 WITH LLVM-exception"]
)
def test_permissive_expressions_are_accepted(expression: str) -> None:
    assert tiny_sources.permissive_licence(metadata(License_Expression=expression)) == expression


@pytest.mark.parametrize(
    "expression", ["GPL-3.0-only", "MPL-2.0 AND MIT", "MIT OR LGPL-2.1-or-later", "LicenseRef-Own"]
)
def test_an_expression_with_any_other_part_is_refused(expression: str) -> None:
    with pytest.raises(tiny_sources.LicenceRefused, match="sample"):
        tiny_sources.permissive_licence(metadata(License_Expression=expression))


def test_classifiers_decide_when_there_is_no_expression() -> None:
    assert (
        tiny_sources.permissive_licence(metadata(Classifier="License :: OSI Approved :: BSD License")) == "BSD License"
    )
    with pytest.raises(tiny_sources.LicenceRefused):
        tiny_sources.permissive_licence(
            metadata(Classifier="License :: OSI Approved :: GNU General Public License v3 (GPLv3)")
        )


@pytest.mark.parametrize("field", ["", "see the file LICENSE", "Proprietary"])
def test_a_missing_or_unclear_licence_is_refused(field: str) -> None:
    with pytest.raises(tiny_sources.LicenceRefused):
        tiny_sources.permissive_licence(metadata(License=field))


def test_a_downloaded_wheel_gives_its_files_and_a_refused_one_is_left_out(tmp_path: Path) -> None:
    for name, licence in (("good", "MIT"), ("bad", "GPL-3.0-only")):
        with zipfile.ZipFile(tmp_path / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr(
                f"{name}-1.0.dist-info/METADATA", f"Name: {name}\nVersion: 1.0\nLicense-Expression: {licence}\n"
            )
            wheel.writestr(f"{name}/core.py", "x = 1\n")
    (source,) = tiny_sources.downloaded_sources(tmp_path)
    assert (source.pin, source.licence) == ("good==1.0", "MIT")
    assert list(tiny_sources.python_files(source)) == [("good/core.py", b"x = 1\n")]


def test_the_manifest_has_no_local_version_and_only_pins() -> None:
    pins = tiny_sources.read_manifest()
    assert len(pins) > 100
    assert len(set(pins)) == len(pins)
    assert all(pin.count("==") == 1 and "+" not in pin for pin in pins)


def test_an_ordinary_file_is_kept_and_normalised() -> None:
    data = (
        b"\xef\xbb\xbf# Copyright somebody\r\n# Licensed under MIT\r\n\r\n" + module(1).replace("\n", "\r\n").encode()
    )
    assert tiny_filter.clean_text("pkg/a.py", data) == module(1).strip("\n") + "\n"


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("pkg/_vendor/six.py", module(1)),
        ("pkg/schema_pb2.py", module(1)),
        ("pkg/a.py", "# This file was automatically generated. Do not edit.\n" + module(1)),
        ("pkg/a.py", module(1) + "def broken(:\n"),
        ("pkg/a.py", module(1) + f"x = '{'y' * 1001}'\n"),
        ("pkg/a.py", "\n".join(f"value_{i} = [{', '.join(['alpha'] * 30)}]" for i in range(20))),
        ("pkg/a.py", "TABLE = [\n" + "    0x1234, 0x5678, 1234567, 9876543,\n" * 200 + "]\n"),
        ("pkg/a.py", module(1) + f"end = {END_OF_TEXT!r}\n"),
        ("pkg/a.py", "x = 1\n"),
        ("pkg/a.py", module(1, 2000)),
    ],
    ids=["vendored", "protobuf", "generated", "syntax", "long line", "wide", "table", "special token", "tiny", "huge"],
)
def test_a_file_that_teaches_nothing_is_dropped(path: str, text: str) -> None:
    assert tiny_filter.clean_text(path, text.encode()) is None


def test_a_file_that_is_not_utf8_is_dropped() -> None:
    assert tiny_filter.clean_text("pkg/a.py", module(1).encode() + b"# caf\xe9\n") is None


def test_exact_and_near_duplicates_are_dropped_and_others_stay() -> None:
    near = module(1).replace("step_1_3", "renamed").replace("    ", "\t")
    files = [SourceFile("p", str(i), text) for i, text in enumerate([module(1), module(2), module(1), near, module(3)])]
    assert [file.path for file in tiny_filter.deduplicate(files)] == ["0", "1", "4"]


def test_training_files_near_held_out_ones_go_in_both_directions() -> None:
    held_out = [SourceFile("held", "small", module(1, 6)), SourceFile("held", "big", module(2, 40))]
    swallows = SourceFile("t", "swallows", module(1, 6) + module(9, 60))
    part = SourceFile("t", "part", module(2, 40)[:2500])
    other = SourceFile("t", "other", module(3))
    assert list(tiny_filter.remove_near([swallows, part, other], held_out)) == [other]


def test_held_out_packages_depend_on_names_and_sizes_alone() -> None:
    sizes = {f"package{i}": 500_000 for i in range(40)} | {"huge": 10**8, "small": 10}
    names = tiny_corpus.held_out_names(sizes)
    assert names == tiny_corpus.held_out_names(dict(reversed(sizes.items())))
    assert len(names) == tiny_corpus.HELD_OUT_PACKAGES
    assert not {"huge", "small"} & set(names)


def test_tests_are_thinned_to_a_fifth_and_nothing_else_is() -> None:
    code = [SourceFile("p", f"p/{i}.py", module(i)) for i in range(10)]
    tests = [SourceFile("p", f"p/tests/test_{i}.py", module(100 + i)) for i in range(10)]
    kept = tiny_corpus.capped_tests(code + tests)
    size = sum(len(f.text) for f in kept)
    share = sum(len(f.text) for f in kept if tiny_filter.is_test(f.path)) / size
    assert kept[:10] == code
    assert 0.1 < share <= tiny_corpus.TEST_SHARE


def test_a_fim_split_joins_back_to_its_section() -> None:
    rng = random.Random(3)
    for section in tiny_forms.sections(module(1, 80)):
        assert len(section) <= tiny_forms.FIM_CHARS
        for _ in range(50):
            cut = tiny_forms.split_middle(section, rng)
            assert cut.prefix + cut.middle + cut.suffix == section
            assert cut.middle.count("\n") <= tiny_forms.MIDDLE_LINES
    assert "".join(tiny_forms.sections(module(1, 80))) == module(1, 80)


def test_the_fim_form_is_prefix_suffix_middle() -> None:
    assert (
        tiny_forms.fim_form(tiny_forms.FimSplit("a", "b", "c"))
        == "<|fim_prefix|>a<|fim_suffix|>c<|fim_middle|>b<|endoftext|>"
    )


def test_a_chat_asks_with_the_docstring_and_answers_with_the_code_alone() -> None:
    pairs = list(tiny_forms.chat_pairs(module(7, 2), random.Random(1)))
    assert len(pairs) == 2
    request, answer = pairs[0]
    assert "step_7_0" in request
    assert "Return value 7 times 0 plus the scale." in request
    assert answer.startswith("def step_7_0(")
    assert answer.endswith("bias_0_7")
    assert tiny_filter.parses(answer)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(module(i, 6) for i in range(300))


def test_the_tokenizer_is_byte_level_and_special_tokens_come_last(tokenizer: Tokenizer) -> None:
    text = "def f(x):\n        return 'naïve ☃ 漢字 \x01'\n\tpass\n"
    assert tokenizer.decode(tokenizer.encode(text).ids) == text
    size = tokenizer.get_vocab_size()
    assert [tokenizer.token_to_id(token) for token in SPECIAL_TOKENS] == list(range(size - len(SPECIAL_TOKENS), size))


def test_transformers_loads_the_tokenizer_with_equal_ids_and_our_own_system_text(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    write_tokenizer(tokenizer, tmp_path)
    write_json(tmp_path / "config.json", {"model_type": "qwen2"})
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    text = module(4) + "e\u0301 <|fim_prefix|>x<|im_end|>"
    assert loaded(text)["input_ids"] == tokenizer.encode(text).ids
    ids = loaded.apply_chat_template([{"role": "user", "content": "hi"}], add_generation_prompt=True, return_dict=False)
    prompt = f"<|im_start|>system\n{SYSTEM_TEXT}<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert ids == tokenizer.encode(prompt).ids
    generation = json.loads((tmp_path / "generation_config.json").read_text())
    assert generation["eos_token_id"] == [tokenizer.token_to_id(END_OF_TEXT), tokenizer.token_to_id(IM_END)]


def test_each_held_out_token_is_scored_once_with_enough_context(tokenizer: Tokenizer) -> None:
    texts = [module(1), "x = 1\n", module(2, 150)]
    windows = tiny_eval.scored_windows(texts, tokenizer)
    lengths = [len(tokenizer.encode(text).ids) for text in texts]
    assert lengths[2] > 3 * 2048
    assert int(windows.scored.sum()) == sum(lengths)
    assert windows.bytes == sum(len(text.encode()) for text in texts)
    scored = [list(w[1:][s]) for w, s in zip(windows.ids, windows.scored, strict=True)]
    assert list(itertools.chain(*scored)) == [i for text in texts for i in tokenizer.encode(text).ids]
    assert all(int(s.argmax()) >= 1023 for s in windows.scored[3:])
    assert windows.bits_per_byte(windows.bytes * math.log(2)) == pytest.approx(1.0)


PLAIN = EvalPrompt("plain", "def f(n):\n")
FIM = EvalPrompt("fim", "def f(n):\n", "    return n\n")


@pytest.mark.parametrize(
    ("prompt", "completion", "counts"),
    [
        (PLAIN, "    a = n\n    b = a\n    return b\n", True),
        (PLAIN, "    a = n\n    b = a\n    return b\n\n\ndef broken(:\n    x", True),
        (PLAIN, "    a = n\n    return a\n", False),
        (PLAIN, "    a = n\n    b = a\n    return b", False),
        (PLAIN, "    a = n\n    a = n\n    a = n\n    b = a\n    return b\n", False),
        (PLAIN, "    a = n\n    b = a\n    c = b\n    a = n\n    a = n\n", True),
        (PLAIN, "    a = (n\n    b = a\n    return b\n", False),
        (PLAIN, "", False),
        (FIM, "    if n < 0:\n        n = 0\n    n += 1\n", True),
        (FIM, "    if n < 0:\n        n = 0\n    n += 1\n    if (", True),
        (FIM, "    if n < 0:\n        n = (\n    n += 1\n", False),
    ],
)
def test_a_completion_counts_by_the_stated_rule(prompt: EvalPrompt, completion: str, counts: bool) -> None:
    assert tiny_eval.judge(prompt, completion)[0] is counts


def test_the_twenty_prompts_are_ten_heads_four_classes_and_six_pairs_and_none_counts_by_itself() -> None:
    plain = [p for p in tiny_eval.PROMPTS if p.suffix is None]
    assert len(tiny_eval.PROMPTS) == len({p.name for p in tiny_eval.PROMPTS}) == 20
    assert len(plain) == 14
    assert sum("class " in p.prefix for p in plain) == 4
    assert not any(tiny_eval.judge(p, "")[0] for p in tiny_eval.PROMPTS)


@pytest.mark.parametrize("name", ["A", "B"])
def test_both_candidates_have_eight_to_twelve_million_parameters_and_group_aligned_rows(name: str) -> None:
    shape = SHAPES[name]
    with torch.device("meta"):
        count = sum(p.numel() for p in TinyCoder(shape).parameters())
    assert 8e6 <= count <= 12e6
    assert shape.vocab == VOCAB_SIZE
    assert shape.hidden % 128 == shape.intermediate % 128 == 0


@pytest.fixture(scope="module")
def packed(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A toy packed corpus of made-up modules."""
    folder = tmp_path_factory.mktemp("packed")
    write_tokenizer(tokenizer, folder)
    files = [SourceFile("toy", f"{i}.py", module(i, 6)) for i in range(60)]
    ids, shares = tiny_corpus.encode_texts(tokenizer, tiny_corpus.training_texts(files))
    assert set(shares) == {"plain", "fim", "chat"}
    assert ids.size == sum(shares.values())
    tiny_corpus.pack_ids(ids, folder, "files", parts=2)
    assert np.array_equal(tiny_corpus.load_ids(folder), ids)
    held_out = json.dumps(["held", "a.py", module(900)])
    (folder / "held_out.jsonl.xz").write_bytes(lzma.compress(held_out.encode()))
    write_json(folder / "corpus.json", {"sha256": "toy"})
    return folder


@pytest.fixture
def short_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of 256 tokens, a loss for each step, and four new tokens a prompt: fast enough for a CPU."""
    for part in (train_tiny_coder, tiny_train, tiny_eval):
        monkeypatch.setattr(part, "MAX_POSITIONS", 256)
    monkeypatch.setattr(tiny_eval, "STRIDE", 128)
    monkeypatch.setattr(tiny_eval, "MAX_NEW_TOKENS", 4)
    monkeypatch.setattr(train_tiny_coder, "LOG_STEPS", 1)


def options(packed: Path, out: Path, **changes: object) -> train_tiny_coder.Options:
    arguments = [
        "--corpus",
        str(packed),
        "--out",
        str(out),
        "--shape",
        "tiny",
        "--batch",
        "1",
        "--steps",
        "4",
        "--evals",
        "2",
    ]
    out.mkdir(parents=True, exist_ok=True)
    parsed = train_tiny_coder.parse_options([*arguments, "--device", "cpu", "--no-compile"])
    return dataclasses.replace(parsed, **changes)  # type: ignore[arg-type]  # names and types are the test's own


@pytest.mark.usefixtures("short_windows")
def test_a_short_run_writes_a_folder_that_transformers_loads_with_equal_logits(packed: Path, tmp_path: Path) -> None:
    trainer = train_tiny_coder.Trainer(options(packed, tmp_path / "run"))
    trainer.run()
    record = train_tiny_coder.export(trainer)
    assert record["steps"] == 4
    assert [step for step, _ in record["bpb_curve"]] == [2, 4]
    assert record["held_out_bits_per_byte"] == pytest.approx(trainer.progress.best_bpb, rel=0.01)
    folder = tmp_path / "run" / "tiny-coder"
    config = json.loads((folder / "config.json").read_text())
    assert config["rope_theta"] == 10_000.0
    assert config["torch_dtype"] == "bfloat16"
    loaded = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ids = torch.tensor([AutoTokenizer.from_pretrained(folder)(module(5))["input_ids"][:300]])
    with torch.no_grad():
        assert torch.allclose(loaded(ids).logits, trainer.model(ids), atol=1e-4)
    assert loaded.generation_config.eos_token_id == [trainer.tokenizer.token_to_id(t) for t in (END_OF_TEXT, IM_END)]


@pytest.mark.usefixtures("short_windows")
def test_a_resumed_run_repeats_the_curve_of_an_uninterrupted_one(packed: Path, tmp_path: Path) -> None:
    whole = train_tiny_coder.Trainer(options(packed, tmp_path / "whole"))
    whole.run()
    first = train_tiny_coder.Trainer(options(packed, tmp_path / "parts"))
    first.run(stop_after=2)
    second = train_tiny_coder.Trainer(options(packed, tmp_path / "parts"))
    second.load()
    second.run()
    assert [step for step, _ in whole.progress.loss_curve] == [1, 2, 3, 4]
    assert second.progress.loss_curve == whole.progress.loss_curve
    assert second.progress.bpb_curve == whole.progress.bpb_curve
    assert all(torch.equal(a, b) for a, b in zip(second.model.parameters(), whole.model.parameters(), strict=True))


@pytest.mark.usefixtures("short_windows")
def test_a_checkpoint_of_another_shape_is_refused(packed: Path, tmp_path: Path) -> None:
    train_tiny_coder.Trainer(options(packed, tmp_path / "run")).save()
    other = dataclasses.replace(SHAPES["tiny"], layers=1)
    trainer = train_tiny_coder.Trainer(options(packed, tmp_path / "run"))
    trainer.shape = other
    with pytest.raises(ValueError, match=r"checkpoint\.pt holds the shape"):
        trainer.load()


def test_a_pass_visits_each_window_once_and_passes_differ() -> None:
    windows = tiny_train.Windows(np.arange(2048 * 12, dtype=np.uint16) % 4096, 2, seed=1, device="cpu", end_id=7000)
    first, second = windows.order(0), windows.order(1)
    assert len(set(first.tolist())) == len(first) == windows.steps_per_pass * 2
    assert len({int(s) % 2048 for s in first}) == 1
    assert not torch.equal(first, second)
    assert int(first.max()) + 2049 <= 2048 * 12
    ids = windows.at(windows.steps_per_pass)
    assert torch.equal(ids[0], (second[0] + torch.arange(2049)) % 4096)


def test_a_window_moves_to_the_next_start_of_a_text_when_it_is_near() -> None:
    ids = np.ones(2048 * 12, dtype=np.uint16)
    ids[[999, 5000]] = 7
    windows = tiny_train.Windows(ids, 2, seed=1, device="cpu", end_id=7)
    assert windows.snapped(np.array([400, 600, 1000, 1001, 4900, 6000])).tolist() == [400, 1000, 1000, 1001, 5001, 6000]


def test_definitions_are_short_top_level_code_with_the_imports_it_needs() -> None:
    module = (
        "import os\nimport re\nfrom a.b import c as d, e\nfrom . import near\n\n\n"
        'def used(path):\n    """Doc."""\n    found = d(path)\n    near(found)\n    return os.path.join(found)\n\n\n'
        'def too_short(x):\n    """Doc.\n\n    More.\n    """\n    return x\n\n\n'
        "class Box:\n    def __init__(self):\n        self.a = 1\n\n    def get(self):\n        return self.a\n"
    )
    first, second = tiny_forms.definitions(module)
    assert first.startswith("import os\nfrom a.b import c as d, e\n\n\ndef used(path):\n")
    assert first.endswith("return os.path.join(found)\n")
    assert "import re" not in first
    assert "near" not in first[:60]
    assert second.startswith("class Box:\n")
    assert second.endswith("return self.a\n")


def test_the_rate_warms_up_and_falls_to_almost_nothing() -> None:
    rates = [tiny_train.rate(step, 2000) for step in range(2000)]
    assert rates[0] < 0.01
    assert max(rates) == pytest.approx(1.0, abs=1e-3)
    assert 0 < rates[-1] < 1e-3
    assert rates.index(max(rates)) in range(148, 152)
    assert tiny_train.rate(20, None) == rates[20]


def test_data_readme_lists_each_used_source_with_its_licence() -> None:
    rows = [
        {"pin": "kept==1", "licence": "MIT", "files": 3, "bytes": 5000, "held_out": False},
        {"pin": "measured==2", "licence": "ISC", "files": 1, "bytes": 700, "held_out": True},
        {"pin": "empty==3", "licence": "MIT", "files": 0, "bytes": 0, "held_out": False},
    ]
    page = tiny_readme.data_readme(
        {"sources": rows, "train_bytes": 5000, "held_out_bytes": 700, "train_tokens": 1500, "seed": 1}
    )
    assert "| kept==1 | MIT | 3 | 5 | |" in page.replace("|  |", "| |")
    assert "| measured==2 | ISC | 1 | 1 | held out |" in page
    assert "empty" not in page


def test_initialisation_is_seeded() -> None:
    shape = Shape(128, 128, 1)
    models = [TinyCoder(shape) for _ in range(3)]
    for model, seed in zip(models, (1, 1, 2), strict=True):
        initialise(model, seed)
    weights = [model.state_dict()["model.layers.0.mlp.up_proj.weight"] for model in models]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
