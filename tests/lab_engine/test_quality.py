"""What quantization costs: KL and bits per byte against their definitions."""

import math

import pytest
import torch

from lab_engine.errors import NanoqwenError
from lab_engine.loading import open_source
from lab_engine.quality import measure, windows
from lab_engine.reference import reference_logits

TEXT = "def add(a, b):\n    return a + b\n" * 3


def test_a_source_compared_with_itself_differs_by_nothing(shared_checkpoint):
    source, tokenizer = open_source(shared_checkpoint)
    quality = measure(source, source, tokenizer, TEXT)
    assert (quality.mean_kl, quality.top1_agreement) == (0, 1)


def test_kl_bits_and_agreement_are_their_definitions(shared_checkpoint, shared_file):
    baseline, tokenizer = open_source(shared_checkpoint)
    source, _ = open_source(shared_file)
    quality = measure(source, baseline, tokenizer, TEXT)
    ids = tokenizer.encode(TEXT)
    p, q = (reference_logits(s, ids)[:-1].double().softmax(dim=-1) for s in (baseline, source))
    bits = -sum(math.log2(q[place, token_id]) for place, token_id in enumerate(ids[1:]))
    assert quality.mean_kl == pytest.approx(float((p * (p / q).log()).sum(dim=-1).mean()), rel=1e-3)
    assert quality.mean_kl > 0
    assert quality.bits_per_byte == pytest.approx(bits / len(tokenizer.decode(ids[1:]).encode()), rel=1e-5)
    assert quality.top1_agreement == pytest.approx(float((p.argmax(-1) == q.argmax(-1)).double().mean()))


@pytest.mark.parametrize("text", ["", "a"])
def test_a_text_with_nothing_to_predict_is_refused(shared_checkpoint, text):
    source, tokenizer = open_source(shared_checkpoint)
    with pytest.raises(NanoqwenError, match=rf"^text: found {len(text)} characters, expected two tokens at least"):
        measure(source, source, tokenizer, text)


def test_windows_cover_the_text_once_and_drop_a_single_last_token(shared_checkpoint):
    _, tokenizer = open_source(shared_checkpoint)
    ids = tokenizer.encode(TEXT)
    runs = list(windows(tokenizer, TEXT, 7))
    assert [token_id for run in runs for token_id in run] == ids[
        : len(ids) // 7 * 7 + (len(ids) % 7 if len(ids) % 7 > 1 else 0)
    ]
    assert [len(run) for run in windows(tokenizer, TEXT, len(ids) - 1)] == [len(ids) - 1]
    assert torch.tensor([len(run) for run in runs]).max() == 7
