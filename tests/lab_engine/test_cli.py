"""The command line: what goes to stdout, what to stderr, and the exit status."""

import io
import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import lab_engine
from lab_engine import cli
from lab_engine.loading import load_decoder
from lab_engine.nanoqwen_file import NanoqwenFile
from tests.lab_engine.processes import environment, nanoqwen, python
from tests.lab_engine.tiny_models import edit_json

PROMPT = "def fibonacci(n):"


@pytest.fixture
def run(monkeypatch, capsys):
    """Run a command in this process: run("generate", "text", stdin=b"") -> (status, stdout, stderr)."""
    monkeypatch.setattr(signal, "signal", lambda *_: None)

    def run_command(*arguments, stdin=b""):
        monkeypatch.setattr(sys, "argv", ["nanoqwen", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
        with pytest.raises(SystemExit) as left:
            cli.main()
        captured = capsys.readouterr()
        return left.value.code, captured.out, captured.err

    return run_command


@pytest.fixture
def refuse(run):
    """Run a command that must be refused: status 2, nothing on stdout, and one line, which is returned."""

    def refused(*arguments, **keywords):
        status, out, err = run(*arguments, **keywords)
        assert (status, out) == (2, "")
        (line,) = err.splitlines()
        assert line.startswith("nanoqwen: ")
        return line.removeprefix("nanoqwen: ")

    return refused


@pytest.fixture(scope="session")
def decoder(shared_file):
    return load_decoder(shared_file)


@pytest.fixture
def shipped(monkeypatch, shared_file):
    """The tiny file stands in for the shipped model."""
    monkeypatch.setattr(lab_engine, "SHIPPED_MODEL", str(shared_file))


def expected(decoder, ids, count):
    ids = list(decoder.generate(ids, count))
    return ids, decoder.tokenizer.decode(ids)


# generate


def test_generate_prints_the_prompt_and_its_continuation(run, shared_file, decoder):
    _, text = expected(decoder, decoder.tokenizer.encode(PROMPT), 12)
    status, out, err = run("generate", PROMPT, "--max-new-tokens", 12, "--model", shared_file)
    assert (status, out.removesuffix("\n"), err) == (0, (PROMPT + text).removesuffix("\n"), "")


def test_generate_uses_the_shipped_model_without_a_model(run, shipped, decoder):
    _, text = expected(decoder, decoder.tokenizer.encode(PROMPT), 5)
    assert run("generate", PROMPT, "--max-new-tokens", 5)[1].removesuffix("\n") == (PROMPT + text).removesuffix("\n")


def test_generate_json_is_one_object_with_the_text_but_not_the_prompt(run, shared_file, decoder):
    prompt_ids = decoder.tokenizer.encode(PROMPT)
    ids, text = expected(decoder, prompt_ids, 6)
    status, out, _ = run("generate", PROMPT, "--max-new-tokens", 6, "--model", shared_file, "--json")
    found = json.loads(out)
    assert status == 0
    assert found.pop("ttft_ms") > 0
    assert found.pop("ms_per_token") > 0
    assert found == {
        "text": text,
        "token_ids": ids,
        "prompt_tokens": len(prompt_ids),
        "backend": "torch",
        "device": "cpu",
        "model": "tiny",
    }


@pytest.mark.parametrize(("count", "times"), [(0, (False, False)), (1, (True, False)), (2, (True, True))])
def test_times_are_null_where_there_is_no_token_to_time(run, shared_file, count, times):
    out = run("generate", PROMPT, "--max-new-tokens", count, "--model", shared_file, "--json")[1]
    found = json.loads(out)
    assert len(found["token_ids"]) == count
    assert (found["ttft_ms"] is not None, found["ms_per_token"] is not None) == times


def test_generate_takes_ids_instead_of_a_text(run, shared_file, decoder):
    prompt_ids = decoder.tokenizer.encode(PROMPT)
    with_text = run("generate", PROMPT, "--max-new-tokens", 6, "--model", shared_file)
    ids = ",".join(map(str, prompt_ids))
    assert run("generate", "--prompt-ids", ids, "--max-new-tokens", 6, "--model", shared_file) == with_text


def test_generate_reads_the_prompt_from_stdin_with_its_line_ends(run, shared_file, decoder):
    text = "a\r\nb é\n"
    out = run("generate", "-", "--max-new-tokens", 1, "--model", shared_file, "--json", stdin=text.encode())[1]
    assert json.loads(out)["prompt_tokens"] == len(decoder.tokenizer.encode(text))


def test_generate_with_a_suffix_prints_prefix_middle_and_suffix(run, shared_file, decoder):
    prefix, suffix = "def f(n):\n", "\n    return n\n"
    _, middle = expected(decoder, decoder.tokenizer.encode_fim(prefix, suffix), 4)
    out = run("generate", prefix, "--fim-suffix", suffix, "--max-new-tokens", 4, "--model", shared_file)[1]
    assert out == prefix + middle + suffix


def test_generate_streams_whole_characters(monkeypatch, run, shared_file, decoder):
    """Each write must be text that UTF-8 can hold at once, and the pieces join to the decoded text."""
    ids = decoder.tokenizer.encode("é🙂x")
    monkeypatch.setattr(type(decoder), "generate", lambda *_: iter(ids))
    assert len(ids) > 3
    pieces = []
    monkeypatch.setattr("lab_engine.terminal._write", pieces.append)
    run("generate", PROMPT, "--model", shared_file)
    assert "".join(pieces) == PROMPT + "é🙂x\n"
    assert not any("\ufffd" in piece for piece in pieces)
    assert len(pieces) > 3


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["generate"], "either a PROMPT or --prompt-ids"),
        (["generate", "a", "--prompt-ids", "1"], "either a PROMPT or --prompt-ids"),
        (["generate", ""], "an empty prompt"),
        (["generate", "-"], "an empty prompt"),
        (["generate", "--prompt-ids", ""], "prompt: found 0 tokens"),
        (["generate", "--prompt-ids", "1,x"], "--prompt-ids: found '1,x'"),
        (["generate", "--prompt-ids", "1,,2"], "--prompt-ids: found '1,,2'"),
        (["generate", "--prompt-ids", "-1"], "token id -1"),
        (["generate", "--prompt-ids", "99999"], "token id 99999"),
        (["generate", "--prompt-ids", "1", "--fim-suffix", "x"], "--fim-suffix needs a PROMPT"),
        (["generate", "a", "--max-new-tokens", "-1"], "--max-new-tokens -1"),
        (["generate", "a", "--max-new-tokens", "many"], "'--max-new-tokens': Input should be a valid integer"),
        (["generate", "a" * 500], "expected at most 96"),
        (["generate", "half a pair \udc80"], "U+DC80"),
        (["generate", "a", "--backend", "tpu"], "backend 'tpu': expected auto, cuda, triton, torch"),
        (["generate", "a", "--backend", "cuda"], "backend cuda: cannot run here"),
        (["generate", "a", "--model", "missing.nanoqwen"], "missing.nanoqwen"),
        (["chat", "--max-new-tokens", "0"], "--max-new-tokens 0"),
        (["inspect", "missing.nanoqwen"], "missing.nanoqwen"),
        (["inspect"], "Missing argument"),
        (["bench", "decode/llama"], "benchmark 'decode/llama': expected one of decode/tiny-coder, "),
        (["bench", "decode128/qwen2.5-coder-7b"], "needs --backend cuda, which cannot run here: "),
        (["bench", "--backend", "cuda"], "backend cuda: cannot run here"),
        (["bench", "--backend", "tpu"], "backend 'tpu'"),
        (["chart"], "No such command"),
        (["doctor", "--yaml"], "No such option"),
    ],
)
def test_bad_input_is_one_line_and_status_2(refuse, shipped, arguments, named):
    assert named in refuse(*arguments)


def test_stdin_that_is_not_utf8_is_refused(refuse, shipped):
    assert "byte 1" in refuse("generate", "-", stdin=b"a\xff")


def test_ctrl_c_while_generating_is_status_130(monkeypatch, run, shared_file, decoder):
    def stopped(*_):
        yield decoder.tokenizer.encode("a")[0]
        raise KeyboardInterrupt

    monkeypatch.setattr(type(decoder), "generate", stopped)
    assert run("generate", PROMPT, "--model", shared_file) == (130, PROMPT + "a", "nanoqwen: interrupted\n")


# chat


def test_chat_answers_each_line_with_the_whole_conversation(run, shared_file, decoder):
    status, out, err = run("chat", "--model", shared_file, "--max-new-tokens", 3, stdin=b"hi\n\nwhy\n/quit\nnever\n")
    messages = [{"role": "user", "content": "hi"}]
    _, first = expected(decoder, decoder.tokenizer.encode_chat(messages), 3)
    messages += [{"role": "assistant", "content": first}, {"role": "user", "content": "why"}]
    _, second = expected(decoder, decoder.tokenizer.encode_chat(messages), 3)
    assert (status, out, err) == (0, f"{first}\n{second}\n", "")


def test_chat_reset_forgets_the_conversation(run, shared_file):
    arguments = ("chat", "--model", shared_file, "--max-new-tokens", 3)
    once = run(*arguments, stdin=b"hi\n")[1]
    assert run(*arguments, stdin=b"hi\n/reset\nhi")[1] == once + once


def test_a_conversation_that_outgrows_the_positions_is_refused_with_one_line(run, shared_file):
    status, out, err = run("chat", "--model", shared_file, "--max-new-tokens", 2, stdin=b"hi\n" + b"word " * 99)
    assert status == 2
    assert out.count("\n") >= 1
    (line,) = err.splitlines()
    assert "the model 96 positions" in line


def test_ctrl_c_in_chat_stops_the_answer_and_not_the_chat(monkeypatch, run, shared_file, decoder):
    a, b = decoder.tokenizer.encode("a")[0], decoder.tokenizer.encode("b")[0]
    answers = iter([(a, KeyboardInterrupt), (b, None)])

    def generate(*_):
        token_id, error = next(answers)
        yield token_id
        if error:
            raise error

    monkeypatch.setattr(type(decoder), "generate", generate)
    assert run("chat", "--model", shared_file, stdin=b"one\ntwo\n") == (0, "a\nb\n", " (stopped)\n")


def test_ctrl_c_at_the_chat_prompt_is_status_130(monkeypatch, run, shared_file):
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("builtins.input", interrupted)
    assert run("chat", "--model", shared_file)[0] == 130


def test_chat_with_a_model_that_has_no_template_is_one_line(refuse, checkpoint):
    edit_json(checkpoint / "tokenizer_config.json", chat_template=None)
    assert "no chat template" in refuse("chat", "--model", checkpoint, stdin=b"hi\n")


# convert


def test_convert_writes_what_the_library_writes_and_says_so(run, shared_checkpoint, shared_file, tmp_path):
    out = tmp_path / "new.nanoqwen"
    status, printed, err = run("convert", shared_checkpoint, out)
    assert (status, printed) == (0, "")
    assert out.read_bytes() == shared_file.read_bytes()
    assert "100%" in err
    assert err.splitlines()[-1].startswith(f"wrote {out}: ")


def test_convert_replaces_a_file_only_by_force(run, refuse, shared_checkpoint, shared_file, tmp_path):
    out = tmp_path / "old.nanoqwen"
    out.write_bytes(b"old")
    assert "--force" in refuse("convert", shared_checkpoint, out)
    assert out.read_bytes() == b"old"
    assert run("convert", shared_checkpoint, out, "--force")[0] == 0
    assert out.read_bytes() == shared_file.read_bytes()


def test_convert_refuses_a_place_where_no_file_can_be(refuse, shared_checkpoint, tmp_path):
    assert "is a folder" in refuse("convert", shared_checkpoint, tmp_path)
    assert "make it first" in refuse("convert", shared_checkpoint, tmp_path / "none" / "m.nanoqwen")
    assert list(tmp_path.iterdir()) == []


def test_convert_names_the_tensor_that_is_wrong_and_leaves_nothing(run, checkpoint, tmp_path):
    edit_json(checkpoint / "config.json", intermediate_size=512)
    status, _, err = run("convert", checkpoint, tmp_path / "m.nanoqwen")
    assert status == 2
    assert "mlp.gate_proj.weight" in err
    assert [path.name for path in tmp_path.iterdir()] == ["tiny"]


SLOW_CONVERSION = """
import sys, time
import lab_engine.convert, lab_engine.cli
quantize = lab_engine.convert.quantize_rows
def slowly(*arguments):
    print("begun", flush=True)
    time.sleep(0.2)
    return quantize(*arguments)
lab_engine.convert.quantize_rows = slowly
sys.argv[0] = "nanoqwen"
lab_engine.cli.main()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot send Ctrl-C to one process")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_conversion_leaves_no_file(shared_checkpoint, tmp_path, number, status):
    process = python(SLOW_CONVERSION, "convert", shared_checkpoint, "m.nanoqwen", folder=tmp_path)
    assert process.stdout.readline() == "begun\n"
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == status
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []
    if number == signal.SIGINT:
        assert err.splitlines()[-1] == "nanoqwen: m.nanoqwen: conversion stopped, no file was written"


FULL_DISK = """
import resource, signal, sys
import lab_engine.cli
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
lab_engine.cli.main()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no file size limit there")
def test_a_full_disk_is_one_line_and_leaves_no_file(shared_checkpoint, tmp_path):
    """A limit on the size of files stands in for the disk: the same error of the operating system, no privileges."""
    process = python(FULL_DISK, "convert", shared_checkpoint, "m.nanoqwen", folder=tmp_path)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 2
    assert err.splitlines()[-1].startswith("nanoqwen: m.nanoqwen: cannot be written (")
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


# inspect


def test_inspect_shows_preamble_config_and_every_kind_of_section(run, shared_file):
    status, out, _ = run("inspect", shared_file)
    assert status == 0
    for text in ("NANOQWEN, 1", "bits 4, group 128", "max_positions", "mlp.down_proj.weight", "value_shuffle", "0–1"):
        assert text in out


def test_inspect_json_holds_the_header(run, shared_file):
    found = json.loads(run("inspect", shared_file, "--json")[1])
    assert found["bytes"] == shared_file.stat().st_size
    assert found["config"] == NanoqwenFile(shared_file).config.to_dict()
    assert found["damaged"] is None
    section = found["sections"]["model.layers.1.mlp.down_proj.weight"]
    assert (section["dtype"], section["shape"], section["offset"] % 4096) == ("INT4", [256, 384], 0)
    assert section["length"] == 256 * 384 // 2


def test_inspect_verify_names_the_damaged_section(run, shared_file, tmp_path):
    assert "all intact" in run("inspect", shared_file, "--verify")[1]
    section = json.loads(run("inspect", shared_file, "--json")[1])["sections"]["model.norm.weight"]
    data = bytearray(shared_file.read_bytes())
    data[section["offset"] + 5] ^= 1
    (tmp_path / "bad.nanoqwen").write_bytes(data)
    status, out, err = run("inspect", tmp_path / "bad.nanoqwen", "--verify", "--json")
    assert status == 2
    assert json.loads(out)["damaged"] == ["model.norm.weight"]
    assert "sections are damaged: model.norm.weight" in err.splitlines()[-1]
    assert "DAMAGED" in run("inspect", tmp_path / "bad.nanoqwen", "--verify")[1]


# progress


def test_progress_lists_the_exercises_and_forgets_on_reset(monkeypatch, run, tmp_path):
    monkeypatch.setenv("NANOQWEN_PROGRESS", str(tmp_path / "progress.json"))
    from lab_engine.checks import progress

    lab, (exercise, *_) = next(iter(progress.LABS.items()))
    progress.record(lab, exercise)
    found = json.loads(run("progress", "--json")[1])
    assert [entry["lab"] for entry in found] == list(progress.LABS)
    assert found[0]["passed"] == [exercise]
    assert exercise in run("progress")[1]
    assert json.loads(run("progress", "--reset", "--json")[1])[0]["passed"] == []


# the process


def test_help_and_inspect_import_no_torch(shared_file, tmp_path):
    code = """
import sys
import lab_engine.cli
try:
    lab_engine.cli.main()
except SystemExit as left:
    print(left.code, sorted({"torch", "transformers", "huggingface_hub"} & set(sys.modules)))
"""
    for arguments in (["--help"], ["generate", "--help"], ["inspect", shared_file, "--verify"], ["progress"]):
        out, _ = python(code, *arguments, folder=tmp_path).communicate(timeout=60)
        assert out.splitlines()[-1] == "0 []", arguments


def test_generate_imports_nothing_slow_beside_torch(shared_file, tmp_path):
    """The start of the program is a promise: first token within 1.5 s of `import torch`."""
    code = """
import sys
import torch
before = set(sys.modules)
import lab_engine.cli
try:
    lab_engine.cli.main()
except SystemExit as left:
    slow = {"transformers", "huggingface_hub", "jinja2", "tqdm", "rich.table", "torch._dynamo", "torch._inductor"}
    print("\\n", left.code, sorted(slow & (set(sys.modules) - before)))
"""
    out, _ = python(
        code, "generate", PROMPT, "--max-new-tokens", 2, "--model", shared_file, folder=tmp_path
    ).communicate(timeout=120)
    assert out.splitlines()[-1] == " 0 []"


def test_the_module_runs_from_any_folder(shared_file, tmp_path):
    done = nanoqwen("generate", PROMPT, "--max-new-tokens", 2, "--model", shared_file, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(PROMPT)
    assert done.stderr == ""


def test_a_stdout_without_unicode_gets_question_marks_and_no_traceback(shared_file, tmp_path):
    for arguments in (["inspect", shared_file], ["generate", "é", "--max-new-tokens", "1", "--model", shared_file]):
        done = nanoqwen(*arguments, folder=tmp_path, PYTHONIOENCODING="ascii")
        assert (done.returncode, done.stderr) == (0, "")
        assert "?" in done.stdout


def test_version_and_a_bare_call(run):
    assert run("--version") == (0, f"nanoqwen {lab_engine.__version__}\n", "")
    assert "generate" in run()[1]


@pytest.mark.skipif(sys.platform == "win32", reason="pipes of Unix")
@pytest.mark.parametrize("command", [["--version"], ["inspect", "FILE", "--json"], ["inspect", "FILE"]])
def test_a_reader_that_has_gone_is_no_error_message(shared_file, tmp_path, command):
    read_end, write_end = os.pipe()
    os.close(read_end)
    arguments = [str(shared_file) if part == "FILE" else part for part in command]
    code = "import lab_engine.cli as c; c.main()"
    process = python(code, *arguments, folder=tmp_path, stdout=write_end)
    os.close(write_end)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (1, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_behind_stdout_is_one_line(tmp_path):
    code = "import lab_engine.cli as c; c.main()"
    with Path("/dev/full").open("w") as full:
        process = python(code, "--version", folder=tmp_path, stdout=full)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    (line,) = err.splitlines()
    assert line.startswith("nanoqwen: ")
    assert "No space left on device" in line


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_behind_flushed_text_names_the_output(tmp_path, shared_file):
    code = "import lab_engine.cli as c; c.main()"
    with Path("/dev/full").open("w") as full:
        process = python(code, "generate", "x", "--model", shared_file, folder=tmp_path, stdout=full)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (2, "nanoqwen: output: No space left on device\n")


@pytest.mark.parametrize(
    ("command", "status"),
    [
        ("generate x --max-new-tokens 3 --model {} >&-", 0),
        ("inspect {} >&-", 0),
        ("inspect {} --json 2>&-", 0),
        ("generate - --model {} <&-", 2),
        ("chat --model {} <&-", 0),
        ("generate x --max-new-tokens -1 2>&-", 2),
    ],
)
def test_a_closed_stdin_stdout_or_stderr_is_as_the_null_device(tmp_path, shared_file, command, status):
    line = f"{sys.executable} -m lab_engine {command.format(shared_file)}"
    process = subprocess.run(
        ["sh", "-c", line], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60, check=False
    )
    assert process.returncode == status, process.stderr
    assert "Traceback" not in process.stderr


def test_an_empty_model_name_is_not_the_shipped_model(refuse, shipped, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "config.json" in refuse("generate", "x", "--model", "")


# the terminal


@pytest.fixture
def terminal(tmp_path):
    """Start a command on a terminal of its own; gives (process, read, write); read(end) waits for that text."""
    pty = pytest.importorskip("pty")
    started = []

    def start(*arguments):
        ours, theirs = pty.openpty()
        command = [sys.executable, "-m", "lab_engine", *map(str, arguments)]
        process = subprocess.Popen(
            command, cwd=tmp_path, env=environment(), stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
        )
        os.close(theirs)
        started.append((process, ours))
        return process, lambda end: read_until(ours, end), lambda keys: os.write(ours, keys)

    yield start
    for process, ours in started:
        process.kill()
        process.wait()
        os.close(ours)


def read_until(descriptor, end):
    seen = b""
    while end not in seen:
        ready, _, _ = select.select([descriptor], [], [], 60)
        assert ready, seen
        seen += os.read(descriptor, 4096)
    return seen.decode()


def test_on_a_terminal_generate_dims_the_prompt_and_ends_with_the_speed(terminal, shared_file):
    process, read, _ = terminal("generate", PROMPT, "--max-new-tokens", 3, "--model", shared_file)
    seen = read(b" tok/s")
    assert process.wait(60) == 0
    assert f"\x1b[2m{PROMPT}\x1b[22m" in seen
    assert "tiny on torch" in seen
    assert "3 tokens at " in seen


def test_on_a_terminal_chat_answers_and_ctrl_d_ends_it(terminal, shared_file):
    process, read, write = terminal("chat", "--model", shared_file, "--max-new-tokens", 3)
    assert "/quit or Ctrl-D" in read(b"> ")
    write(b"hi\n")
    read(b"> ")
    write(b"word " * 99 + b"\n")
    assert "/reset" in read(b"> ")
    write(b"\x04")
    assert process.wait(60) == 0
