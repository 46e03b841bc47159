"""What an unpacking costs: instructions in source and machine code, measured on an H200, and on this machine."""

import statistics

from lab_engine.errors import NanoqwenError
from lab_engine.int4 import BYTES_PER_WEIGHT
from lab_engine.recordings import Recording
from lab_engine.sass import compile_cubin, disassemble, instructions_per_word
from lab_engine.unpack import COMPILED, SOURCE, WEIGHTS, every_half_word, unpack_all
from lab_engine.unpack_gpu import UnpackGpu, gpu_arch
from widgets.evidence import Table
from widgets.live_table import LiveTable
from widgets.machine import HERE
from widgets.playground import Badge
from widgets.source import Source, cuda_function

RIGHT = ("shift_mask", "lop3", "prmt")
INTEGER = ("LOP3", "PRMT", "SHF", "LEA", "VIADD")
INTEGER_LANES = 64
_RUNS = 5


def kernel_source(method: str) -> Source:
    """The function of kernels/unpack.cuh that unpacks by this method, with the comment above it."""
    return cuda_function(SOURCE, f"unpack_{method}")


def machine_code(recording: Recording, method: str) -> Source:
    """The recorded SASS of the kernel that unpacks one word a thread, an address before each instruction."""
    lines = recording.data["methods"][method]["sass"]
    return Source("\n".join(f"{line['address']:04x}  {line['text']}" for line in lines))


def instructions_table(recording: Recording, bandwidth: float) -> Table:
    """Instructions a weight, and the weights a second of an H200 that only unpacks, in registers.

    The loops that were timed hold two XORs a word more, which use up the results: they are in the times.
    bandwidth: bytes a second that the reading brings; it needs bandwidth / 0.515625 weights a second.
    """
    needed = bandwidth / BYTES_PER_WEIGHT
    methods, timing = recording.data["methods"], recording.data["timing"]["methods"]
    rows = []
    for method in RIGHT:
        counts = methods[method]["sass_instructions_per_word"]
        integer = sum(count for opcode, count in counts.items() if opcode.startswith(INTEGER))
        weights = WEIGHTS * timing[method]["words_per_second"]
        instructions = (methods[method]["ptx_instructions_per_word"], sum(counts.values()), integer)
        per_weight = (f"{count / WEIGHTS:.3f}" for count in instructions)
        rows.append((method, *per_weight, f"{weights / 1e12:.2f}", f"{100 * weights / needed:.0f} %"))
    columns = (
        "way",
        "instructions a weight",
        "machine code",
        "of it integer",
        "10¹² weights/s",
        "of what memory brings",
    )
    note = (
        f"{bandwidth / 1e12:g} TB/s (quoted: first experiment) bring {needed / 1e12:.2f} × 10¹² weights/s: 100 %. "
        "Times include two XORs a word, which use up the results."
    )
    badge = Badge("recorded", recording.badge_source)
    return Table("Three ways to unpack, in registers", columns, tuple(rows), badge, note)


def integer_room(recording: Recording, bandwidth: float) -> float:
    """Integer instructions that all SMs can do in the time in which `bandwidth` brings a weight's 0.515625 bytes.

    An SM of compute capability 9.0 does 64 a clock: CUDA Programming Guide, "Throughput of Native Arithmetic
    Instructions".
    """
    clock = recording.provenance.clocks_mhz["sm"] * 1e6
    return float(recording.data["timing"]["sms"] * INTEGER_LANES * clock / (bandwidth / BYTES_PER_WEIGHT))


def code_here(recording: Recording) -> LiveTable:
    """Compile the kernels on this machine, which needs no GPU, and count again."""
    rows: list[tuple[str, str, str]] = []
    note = "The same count. Another version of the compiler may move a constant once more or less."
    try:
        listing = disassemble(compile_cubin("unpack.cu"))
        for method in RIGHT:
            counts = instructions_per_word(listing, method)
            opcodes = ", ".join(f"{count:g} {opcode}" for opcode, count in counts.items())
            rows.append((method, f"{sum(counts.values()) / WEIGHTS:.3f}", opcodes))
        recorded = [recording.data["methods"][method]["sass_instructions_per_weight"] for method in RIGHT]
        if [row[1] for row in rows] != [f"{count:.3f}" for count in recorded]:
            note = f"The H200's compiler needed {', '.join(f'{count:.3f}' for count in recorded)}."
    except NanoqwenError as error:
        note = f"Not compiled here: {error}. The recorded code is above."
    columns = ("way", "instructions a weight", "of a word of eight")
    text = "The machine code compiled here: in the picture"
    return LiveTable(Table("The machine code, compiled here", columns, tuple(rows), HERE if rows else None, note), text)


def gpu_here() -> LiveTable:
    """Run the kernels on this machine's GPU: are all half-words right, and how many weights a second?"""
    rows: list[tuple[str, str, str]] = []
    note = "Every half-word in both halves, compared bit by bit with the emulator."
    try:
        gpu, words = UnpackGpu(compile_cubin("unpack.cu", gpu_arch())), every_half_word()
        for method in COMPILED:
            same = gpu.unpack(words, method).tobytes() == unpack_all(words, method).tobytes()
            rate = statistics.median(gpu.loop(method).words_per_second for _ in range(_RUNS))
            rows.append((method, "yes" if same else "NO", f"{WEIGHTS * rate / 1e12:.2f}"))
    except NanoqwenError as error:
        note = f"Not run here: {error}"
    columns = ("way", "equal to the emulator", "10¹² weights a second")
    text = "The kernels on this machine's GPU: in the picture"
    return LiveTable(
        Table("The kernels on this machine's GPU", columns, tuple(rows), HERE if rows else None, note), text
    )
