"""Trains tiny-coder, the shipped model, on one GPU in at most 8 minutes (any device for toy sizes).

    python -m tools.train_tiny_coder --minutes 8 --out RUN

Reads the packed corpus (tools/tiny_corpus.py) and writes RUN/tiny-coder (a Hugging Face folder with its
training_record.json) and RUN/checkpoint.pt, from which `--resume` continues. Each pass over the data visits each window
of 2048 tokens once; a window moves to the start of a text that is near. Muon moves the matrices, AdamW the embedding,
norms and biases; both rates warm up, then fall linearly to zero. The number of steps comes from `--minutes`, the speed
measured after compilation, and `--passes`; it is fixed once and kept in the checkpoint.
"""

from __future__ import annotations

import argparse
import json
import platform
import shlex
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

START = time.monotonic()

import numpy as np  # noqa: E402  (the clock starts before the slow imports, which count against --minutes)
import safetensors  # noqa: E402
import tokenizers  # noqa: E402
import torch  # noqa: E402
from torch import Tensor  # noqa: E402
from tqdm import tqdm  # noqa: E402

from tools import tiny_corpus, tiny_eval  # noqa: E402
from tools.tiny_model import SHAPES, TinyCoder, hf_config, initialise, write_weights  # noqa: E402
from tools.tiny_tokenizer import END_OF_TEXT, IM_END, MAX_POSITIONS, special_ids, write_json  # noqa: E402
from tools.tiny_train import Progress, Windows, make_optimizers, rate, token_nats  # noqa: E402

TIMED_STEPS = range(10, 40)
RESERVE_SECONDS = 45.0
LOG_STEPS = 25
CLIP_NORM = 1.0


@dataclass(frozen=True)
class Options:
    """What the command line sets."""

    corpus: Path
    out: Path
    shape: str
    minutes: float
    passes: float
    batch: int
    steps: int | None
    muon_lr: float
    adamw_lr: float
    weight_decay: float
    evals: int
    checkpoint_every: int
    seed: int
    resume: bool
    device: str
    compile: bool


class Trainer:
    """Holds the run: model, optimizers, data, progress."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.shape = SHAPES[options.shape]
        torch.manual_seed(options.seed)
        torch.set_float32_matmul_precision("high")
        self.tokenizer = tokenizers.Tokenizer.from_file(str(options.corpus / "tokenizer.json"))
        ids, end_id = tiny_corpus.load_ids(options.corpus), special_ids(self.tokenizer)[END_OF_TEXT]
        self.windows = Windows(ids, options.batch, options.seed, options.device, end_id)
        texts = [file.text for file in tiny_corpus.load_held_out(options.corpus)]
        self.held_out = tiny_eval.scored_windows(texts, self.tokenizer)
        self.model = TinyCoder(self.shape)
        initialise(self.model, options.seed)
        self.model.to(options.device)
        self.optimizers = make_optimizers(self.model, options.muon_lr, options.adamw_lr, options.weight_decay)
        self.nats = torch.compile(token_nats) if options.compile else token_nats
        self.progress = Progress()
        self.best: dict[str, Tensor] = {}
        self.spent_before = 0.0

    def elapsed(self) -> float:
        """Seconds of this run, those before a resume included."""
        return self.spent_before + time.monotonic() - START

    def synchronize(self) -> None:
        if self.options.device == "cuda":
            torch.cuda.synchronize()

    def autocast(self) -> torch.autocast:
        return torch.autocast(self.options.device, torch.bfloat16, enabled=self.options.device == "cuda")

    def train_step(self, step: int) -> Tensor:
        """One optimizer step; returns the mean loss as a device scalar."""
        with self.autocast():
            loss = self.nats(self.model, self.windows.at(step)).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), CLIP_NORM)
        share = rate(step, self.progress.total_steps)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["peak_lr"] * share
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    @torch.no_grad()
    def held_out_bpb(self) -> float:
        """Bits per byte of the whole held-out text; the last batch is padded so that one compiled shape serves all."""
        batch = self.options.batch
        total = 0.0
        for start in range(0, len(self.held_out.ids), batch):
            ids, scored = self.held_out.ids[start : start + batch], self.held_out.scored[start : start + batch]
            short = batch - len(ids)
            ids, scored = np.pad(ids, ((0, short), (0, 0))), np.pad(scored, ((0, short), (0, 0)))
            with self.autocast():
                nats = self.nats(self.model, torch.from_numpy(ids).to(self.options.device).long())
            total += float((nats.double() * torch.from_numpy(scored).to(self.options.device)).sum())
        return self.held_out.bits_per_byte(total)

    def plan(self, seconds_per_step: float | None) -> int:
        """The length of the schedule: what the time left allows, at most `passes` over the data."""
        cap = int(self.options.passes * self.windows.steps_per_pass)
        if self.options.steps is not None:
            return min(cap, self.options.steps)
        assert seconds_per_step is not None
        left = self.options.minutes * 60 - RESERVE_SECONDS - self.elapsed()
        return max(TIMED_STEPS.stop + 1, min(cap, self.progress.step + int(left / seconds_per_step)))

    def evaluate(self) -> float:
        """Measures the held-out text and keeps the weights when they are the best so far."""
        bpb = self.held_out_bpb()
        self.progress.bpb_curve.append((self.progress.step, bpb))
        if bpb < self.progress.best_bpb:
            self.progress.best_bpb = bpb
            self.best = {name: tensor.detach().cpu().clone() for name, tensor in self.model.state_dict().items()}
        tqdm.write(
            f"step {self.progress.step}: held-out {bpb:.4f} bits per byte at {self.elapsed():.0f} s", file=sys.stderr
        )
        return bpb

    def save(self) -> None:
        """Writes checkpoint.pt through a temporary file."""
        self.progress.seconds = self.elapsed()
        state = {
            "shape": asdict(self.shape),
            "progress": asdict(self.progress),
            "model": self.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "best": self.best,
        }
        partial = self.options.out / "checkpoint.partial"
        torch.save(state, partial)
        partial.rename(self.options.out / "checkpoint.pt")

    def load(self) -> None:
        """Continues from checkpoint.pt. Raises ValueError when it belongs to another shape."""
        state = torch.load(self.options.out / "checkpoint.pt", map_location=self.options.device, weights_only=True)
        if state["shape"] != asdict(self.shape):
            raise ValueError(f"checkpoint.pt holds the shape {state['shape']}, not {self.options.shape}")
        self.progress = Progress(**state["progress"])
        self.spent_before = self.progress.seconds
        self.model.load_state_dict(state["model"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.best = {name: tensor.cpu() for name, tensor in state["best"].items()}

    def settle_length(self, started: float) -> float:
        """Times TIMED_STEPS after compilation, then fixes the schedule's length. Returns when timing began."""
        step = self.progress.step
        if step == TIMED_STEPS.start:
            self.evaluate()
            return self.elapsed()
        if step == TIMED_STEPS.stop:
            self.synchronize()
            self.progress.total_steps = self.plan((self.elapsed() - started) / len(TIMED_STEPS))
        return started

    def run(self, stop_after: int | None = None) -> None:
        """Trains to the end of the schedule, or until `stop_after` steps are done, and writes the checkpoint."""
        progress, options = self.progress, self.options
        if options.steps is not None and progress.total_steps is None:
            progress.total_steps = self.plan(None)
        bar = tqdm(
            initial=progress.step, total=progress.total_steps, mininterval=10, ncols=110, desc=f"shape {options.shape}"
        )
        started = 0.0
        last = (progress.step, self.elapsed())
        while progress.step not in {progress.total_steps, stop_after}:
            loss = self.train_step(progress.step)
            progress.step += 1
            bar.update()
            if progress.total_steps is None:
                started = self.settle_length(started)
                bar.total = progress.total_steps
            total = progress.total_steps
            if progress.step % LOG_STEPS == 0 or progress.step == total:
                progress.loss_curve.append((progress.step, loss.item()))
                speed = (progress.step - last[0]) * options.batch * MAX_POSITIONS / (self.elapsed() - last[1])
                last = (progress.step, self.elapsed())
                bar.set_postfix_str(f"loss {loss.item():.3f} {speed / 1e6:.2f} Mtok/s", refresh=False)
            if total and (progress.step == total or progress.step % max(1, total // options.evals) == 0):
                self.evaluate()
            if progress.step % options.checkpoint_every == 0:
                self.save()
        bar.close()
        self.save()


def greedy(model: TinyCoder, stop_ids: set[int], device: str) -> tiny_eval.Generate:
    """A greedy `generate(ids, max_new_tokens)` that runs the whole sequence each time."""

    @torch.no_grad()
    def generate(ids: list[int], max_new_tokens: int) -> list[int]:
        sequence = list(ids)
        for _ in range(max_new_tokens):
            window = torch.tensor([sequence[-MAX_POSITIONS:]], device=device)
            next_id = int(model(window)[0, -1].argmax())
            if next_id in stop_ids:
                break
            sequence.append(next_id)
        return sequence[len(ids) :]

    return generate


def device_facts(device: str) -> dict[str, str]:
    """Names of the device and driver, and the versions that ran."""
    name, driver = platform.processor() or platform.machine(), ""
    if device == "cuda":
        name = torch.cuda.get_device_name()
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        driver = subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()
    versions = {"python": platform.python_version(), "torch": torch.__version__, "tokenizers": tokenizers.__version__}
    return {
        "device": name,
        "driver": driver,
        "numpy": np.__version__,
        "safetensors": safetensors.__version__,
        **versions,
    }


def export(trainer: Trainer) -> dict[str, Any]:
    """Writes the best weights as a Hugging Face folder, measures them as written (bf16), and returns the record."""
    options, progress = trainer.options, trainer.progress
    folder = options.out / "tiny-coder"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        (folder / name).write_bytes((options.corpus / name).read_bytes())
    special = special_ids(trainer.tokenizer)
    eos, im_end = special[END_OF_TEXT], special[IM_END]
    write_json(folder / "config.json", hf_config(trainer.shape, eos))
    write_weights(trainer.best, folder)
    trainer.model.load_state_dict({name: tensor.to(torch.bfloat16).float() for name, tensor in trainer.best.items()})
    bpb = trainer.held_out_bpb()
    verdicts = tiny_eval.run_prompts(greedy(trainer.model, {eos, im_end}, options.device), trainer.tokenizer)
    corpus = json.loads((options.corpus / "corpus.json").read_text("utf-8"))
    record = {
        "command": shlex.join(["python", "-m", "tools.train_tiny_coder", *sys.argv[1:]]),
        "seed": options.seed,
        "shape": asdict(trainer.shape),
        "parameters": sum(p.numel() for p in trainer.model.parameters()),
        "steps": progress.step,
        "tokens": progress.step * options.batch * MAX_POSITIONS,
        "passes": progress.step / trainer.windows.steps_per_pass,
        "seconds": round(trainer.elapsed(), 1),
        "held_out_bits_per_byte": bpb,
        "prompts_that_count": sum(v.counts for v in verdicts),
        "prompts": [asdict(v) for v in verdicts],
        **device_facts(options.device),
        "corpus": {
            key: corpus[key] for key in ("sha256", "train_bytes", "train_tokens", "held_out_bytes") if key in corpus
        },
        "bpb_curve": progress.bpb_curve,
        "loss_curve": progress.loss_curve,
    }
    write_json(folder / "training_record.json", record)
    return record


def parse_options(arguments: list[str] | None = None) -> Options:
    """The options of a command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cuda = torch.cuda.is_available()
    parser.add_argument("--corpus", type=Path, default=tiny_corpus.CORPUS / "packed", help="the packed corpus")
    parser.add_argument("--out", type=Path, required=True, help="the run's folder")
    parser.add_argument("--shape", choices=sorted(SHAPES), default="B")
    parser.add_argument("--minutes", type=float, default=8.0, help="wall clock for everything")
    parser.add_argument("--passes", type=float, default=8.0, help="at most so many passes over the data")
    parser.add_argument("--batch", type=int, default=64, help="windows of 2048 tokens a step")
    parser.add_argument("--steps", type=int, help="the schedule's length, instead of --minutes")
    parser.add_argument("--muon-lr", type=float, default=4e-3)
    parser.add_argument("--adamw-lr", type=float, default=4e-3)
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--evals", type=int, default=8, help="held-out measurements over the run")
    parser.add_argument("--checkpoint-every", type=int, default=1000, help="steps")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--resume", action="store_true", help="continue from the run's checkpoint.pt")
    parser.add_argument("--device", default="cuda" if cuda else "cpu")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=cuda)
    return Options(**vars(parser.parse_args(arguments)))


def main() -> None:
    """Trains, exports and prints the verdicts."""
    options = parse_options()
    options.out.mkdir(parents=True, exist_ok=True)
    trainer = Trainer(options)
    if options.resume:
        trainer.load()
    trainer.run()
    record = export(trainer)
    for verdict in record["prompts"]:
        print(f"{'counts' if verdict['counts'] else 'fails':7} {verdict['name']:14} {verdict['reason']}")
    speed = record["tokens"] / record["seconds"] / 1e6
    print(
        f"shape {options.shape}: {record['parameters'] / 1e6:.2f} M parameters, "
        f"{record['held_out_bits_per_byte']:.4f} bits per byte, "
        f"{record['prompts_that_count']} of {len(record['prompts'])} prompts, {record['passes']:.2f} passes, "
        f"{record['seconds']:.0f} s, {speed:.2f} Mtok/s over all"
    )


if __name__ == "__main__":
    main()
