"""The command line `nanoqwen`: one command a function, each a thin layer over one module.

Data goes to stdout; progress, statistics and messages go to stderr. An error is one line and exit status 2, Ctrl-C
is 130. Everything slow (torch first of all) is imported by the command that needs it, so that --help, inspect and
doctor's refusals come at once.
"""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from lab_engine import __version__
from lab_engine.errors import NanoqwenError, PromptError
from lab_engine.leaving import (
    drop_stdout,
    flush_stdout,
    leave_tidily_when_told_to,
    leaving_at_once_on_ctrl_c,
    open_closed_streams,
    refuse,
    say,
)

app = typer.Typer(
    help="An INT4 Qwen2 decoder with a paged KV cache, in the terminal.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Model = Annotated[
    str | None, typer.Option("--model", help="A .nanoqwen file or a Hugging Face folder; else the shipped model.")
]
Backend = Annotated[str, typer.Option("--backend", help="torch, triton, cuda, or auto: the fastest that works here.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]


def main() -> None:
    """Run the command line and leave with its status: 0, 1 (a check failed), 2 (bad input) or 130 (Ctrl-C)."""
    open_closed_streams()
    leave_tidily_when_told_to()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a pipe or terminal without Unicode gets "?", not a traceback
    try:
        status = app(prog_name="nanoqwen", standalone_mode=False) or 0
    except NanoqwenError as error:
        status = refuse(str(error))
    except typer.TyperException as error:
        status = refuse(f"{error.format_message()} (nanoqwen --help shows how)")
    except OSError as error:
        status = refuse(f"{error.filename or 'output'}: {error.strerror or error}")
        if error.filename is None:
            drop_stdout()
    if status == 130:
        say("nanoqwen: interrupted")
    sys.exit(flush_stdout() or status)


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help="Print it and leave.")] = False
) -> None:
    if version:
        print(f"nanoqwen {__version__}")
    elif context.invoked_subcommand is None:
        print(context.get_help(), end="")


@app.command()
def generate(
    prompt: Annotated[str | None, typer.Argument(help="Text to continue; - reads it from stdin.")] = None,
    max_new_tokens: Annotated[int, typer.Option(help="Stop after this many tokens at the latest.")] = 128,
    model: Model = None,
    backend: Backend = "auto",
    prompt_ids: Annotated[str | None, typer.Option(help="Token ids instead of a text: 1,2,3.")] = None,
    fim_suffix: Annotated[str | None, typer.Option(help="Write what belongs between PROMPT and this text.")] = None,
    as_json: AsJson = False,
) -> None:
    """Continue a text, greedily. Prints the prompt and what follows it: whole Python where the prompt is Python.

    --json prints one object: text (without the prompt), token_ids, prompt_tokens, ttft_ms, ms_per_token, backend,
    device, model.
    """
    if (prompt is None) == (prompt_ids is None):
        raise PromptError("generate: expected either a PROMPT or --prompt-ids, one of the two")
    if prompt_ids is not None and fim_suffix is not None:
        raise PromptError("generate: --fim-suffix needs a PROMPT, not --prompt-ids")
    text = _stdin() if prompt == "-" else prompt
    if max_new_tokens < 0 or text == "":
        found = "an empty prompt" if text == "" else f"--max-new-tokens {max_new_tokens}"
        raise PromptError(f"generate: found {found}, expected {'some text' if text == '' else '0 or more'}")
    ids = None if prompt_ids is None else _token_ids(prompt_ids)

    from lab_engine import terminal

    terminal.generate(_load(model, backend), text, ids, fim_suffix, max_new_tokens, as_json)


@app.command()
def chat(
    model: Model = None,
    backend: Backend = "auto",
    max_new_tokens: Annotated[int, typer.Option(help="Stop an answer after this many tokens at the latest.")] = 512,
) -> None:
    """Talk with the model. /reset starts anew, /quit or Ctrl-D ends, Ctrl-C stops the current answer."""
    if max_new_tokens < 1:
        raise PromptError(f"chat: found --max-new-tokens {max_new_tokens}, expected 1 or more")
    from lab_engine import terminal

    terminal.chat(_load(model, backend), max_new_tokens)


@app.command()
def convert(
    source: Annotated[str, typer.Argument(help="A Hugging Face folder, or a hub id such as Qwen/Qwen2.5-Coder-0.5B.")],
    out: Annotated[Path, typer.Argument(help="The .nanoqwen file to write.")],
    force: Annotated[bool, typer.Option("--force", help="Replace OUT if it is there.")] = False,
) -> None:
    """Quantize a checkpoint to INT4 and write it as one .nanoqwen file."""
    if out.is_dir():
        raise NanoqwenError(f"{out}: is a folder; expected the name of the .nanoqwen file to write")
    if out.exists() and not force:
        raise NanoqwenError(f"{out}: is there already; choose another name, or --force to replace it")
    if not out.absolute().parent.is_dir():
        raise NanoqwenError(f"{out}: the folder {out.absolute().parent} is not there; make it first")
    try:
        from lab_engine.convert import convert as run
        from lab_engine.convert import find_folder
        from lab_engine.terminal import conversion_bar

        with leaving_at_once_on_ctrl_c(f"nanoqwen: {source}: download stopped, no file was written"):
            folder = find_folder(source)
        with conversion_bar(out.name) as progress:
            run(folder, out, progress=progress)
    except KeyboardInterrupt:
        say(f"nanoqwen: {out}: conversion stopped, no file was written")
        sys.exit(130)
    say(f"wrote {out}: {out.stat().st_size / 1e6:.1f} MB")


@app.command()
def inspect(
    file: Path,
    verify: Annotated[bool, typer.Option("--verify", help="Also read everything and compare the checksums.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what a .nanoqwen file holds; exit status 2 if --verify finds damage."""
    from lab_engine import file_report
    from lab_engine.nanoqwen_file import NanoqwenFile

    opened = NanoqwenFile(file)
    damaged = file_report.damaged_sections(opened) if verify else None
    if as_json:
        _print_json(file_report.as_dict(opened, damaged))
    else:
        _print_rich(*file_report.as_tables(opened, damaged))
    if damaged:
        raise NanoqwenError(
            f"{file}: {len(damaged)} of {len(opened.sections)} sections are damaged: {', '.join(damaged)}; "
            "copy the file again or convert the model again"
        )


@app.command()
def bench(
    names: Annotated[list[str] | None, typer.Argument(help="Which benchmarks; all without a name.")] = None,
    backend: Backend = "auto",
    as_json: AsJson = False,
) -> None:
    """Measure this machine, beside what its bandwidth allows; exit status 1 if an output was wrong."""
    import lab_engine.bench as benchmarks

    results = benchmarks.run(names or [], backend, say)
    if as_json:
        _print_json([result.to_dict() for result in results])
    else:
        _print_rich(benchmarks.as_table(results))
    if not all(result.passed for result in results):
        sys.exit(1)


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """Say what this machine can run, what is missing, and what to do about it."""
    from lab_engine import doctor as examination

    report = examination.examine()
    if as_json:
        _print_json(report.to_dict())
    else:
        _print_rich(*examination.as_tables(report))


@app.command()
def progress(
    as_json: AsJson = False, reset: Annotated[bool, typer.Option("--reset", help="Forget everything.")] = False
) -> None:
    """Show which exercises of the labs are passed."""
    from lab_engine.checks import progress as record

    if reset:
        record.reset()
    labs = record.summary()
    if as_json:
        _print_json([{"lab": lab.lab, "passed": lab.passed, "open": lab.open} for lab in labs])
    else:
        _print_rich(record.as_table(labs))
    if problem := record.problem():
        say(problem)


def _load(model: str | None, backend: str) -> Any:
    import lab_engine

    return lab_engine.load(model, backend)


def _token_ids(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")] if text.strip() else []
    except ValueError:
        raise PromptError(f"--prompt-ids: found {text!r}, expected whole numbers with commas between: 1,2,3") from None


def _stdin() -> str:
    """All of stdin, line ends as they are; PromptError where it is not UTF-8."""
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise PromptError(f"stdin: not UTF-8 text (byte {error.start}); expected valid UTF-8") from None


def _print_json(value: object) -> None:
    print(json.dumps(value, indent=2))


def _print_rich(*things: Any) -> None:
    from rich.console import Console

    Console(width=None if sys.stdout.isatty() else 110).print(*things, sep="\n")
