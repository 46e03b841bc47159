"""The CUDA backend on a machine without a Hopper GPU: what it says of itself, and how it packs matrices."""

import pytest
import torch

from lab_engine import backends
from lab_engine.backends import cuda, make_backend
from lab_engine.backends.cuda import CudaBackend, load_tiles
from lab_engine.config import ModelConfig
from lab_engine.errors import BackendError
from lab_engine.gemv_mma import pack_tiles, plan, unpack_tiles
from lab_engine.gemv_token import random_matrix
from lab_engine.weights import Int4Matrix

CONFIG = ModelConfig(256, 384, 1, 4, 2, 64, 512, 1024, 1e6, 1e-6, tie_embeddings=True)
CPU = torch.device("cpu")


def parts(*rows, k=256):
    generator = torch.Generator().manual_seed(sum(rows))
    return [random_matrix(n, k, generator) for n in rows]


def unpacked(matrix):
    words, scales = unpack_tiles(matrix.tiles, matrix.plan)
    return Int4Matrix(words, scales).float()


@pytest.mark.parametrize("rows", [(256, 64, 64), (250, 57, 57), (1,), (33,), (513, 1, 7)])
@pytest.mark.parametrize("sms", [1, 3, 132])
def test_the_rows_of_a_joined_matrix_follow_one_another(rows, sms):
    given = parts(*rows)
    matrix = load_tiles(given, sms, CPU)
    assert matrix.plan.n == sum(rows)
    assert torch.equal(unpacked(matrix), torch.cat([part.float() for part in given]))


@pytest.mark.parametrize("rows", [384, 37, 1])
def test_gate_and_up_come_in_turn(rows):
    gate, up = parts(rows, rows)
    found = unpacked(load_tiles([gate, up], 3, CPU))
    assert torch.equal(found[::2], gate.float())
    assert torch.equal(found[1::2], up.float())


@pytest.mark.parametrize("rows", [(300, 100, 100), (250, 250), (501,)])
@pytest.mark.parametrize("weights", [1, 5000, 40_000])
def test_packing_in_pieces_gives_the_bytes_of_packing_at_once(monkeypatch, rows, weights):
    whole = load_tiles(parts(*rows), 7, CPU)
    monkeypatch.setattr(cuda, "_PIECE_WEIGHTS", weights)
    assert torch.equal(load_tiles(parts(*rows), 7, CPU).tiles, whole.tiles)
    if len(rows) == 1:
        [one] = parts(*rows)
        assert torch.equal(whole.tiles, pack_tiles(one.words, one.scales, plan(501, 256, 7)))


def test_a_piece_is_all_that_packing_takes_beside_the_matrix(monkeypatch):
    """A matrix of 4096 rows in pieces of 16: no tensor that is made on the way is longer than a piece of the words."""
    made = []
    monkeypatch.setattr(cuda, "_PIECE_WEIGHTS", 16 * 256)
    monkeypatch.setattr(cuda, "pack_tiles", lambda words, *rest: made.append(len(words)) or pack_tiles(words, *rest))
    load_tiles(parts(4096), 256, CPU)
    assert set(made) == {16}
    assert len(made) == 256


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "found floating weights, expected packed INT4"),
        ([torch.zeros(8, 256)], "found floating weights, expected packed INT4; nanoqwen convert"),
        ([*parts(8), *parts(8, k=384)], r"found parts \[\(8, 256\), \(8, 384\)\] to join, expected rows of one length"),
        (parts(8, 10), r"found gate \(8, 256\) and up \(10, 256\), expected equal shapes"),
    ],
)
def test_parts_that_make_no_matrix_are_refused(given, message):
    with pytest.raises(BackendError, match=message):
        load_tiles(given, 4, CPU)


def test_the_backend_says_what_it_has_and_what_not():
    option = backends.availability()[0]
    assert (option.name, option.available) == ("cuda", False)
    assert "has the matrix products of a decode step, but not yet its attention and KV cache" in option.reason


def hopper(monkeypatch, capability=(9, 0), sees=True):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: sees)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Some GPU")
    monkeypatch.setattr(cuda, "find_spec", lambda name: name)


def test_auto_never_takes_it_even_on_hopper(monkeypatch):
    hopper(monkeypatch)
    assert cuda.missing() is None
    assert make_backend("auto", CONFIG, None).name != "cuda"
    with pytest.raises(BackendError, match=r"backend cuda: cannot run here: this version has .* use --backend torch"):
        make_backend("cuda", CONFIG, None)


@pytest.mark.parametrize(
    ("capability", "sees", "reason"),
    [
        ((9, 0), False, "needs an NVIDIA Hopper GPU, and PyTorch sees none"),
        ((8, 9), True, r"needs an NVIDIA Hopper GPU \(9\.0\), found Some GPU \(8\.9\)"),
        ((10, 0), True, r"needs an NVIDIA Hopper GPU \(9\.0\), found Some GPU \(10\.0\)"),
    ],
)
def test_a_machine_without_hopper_is_refused_in_one_line(monkeypatch, capability, sees, reason):
    hopper(monkeypatch, capability, sees)
    with pytest.raises(BackendError, match=f"^backend cuda: cannot run here: {reason}$"):
        CudaBackend(CONFIG)


def test_a_machine_without_cuda_core_is_told_what_to_install(monkeypatch):
    hopper(monkeypatch)
    monkeypatch.setattr(cuda, "find_spec", lambda _: None)
    with pytest.raises(BackendError, match=r"needs cuda-core; on Linux: .*\.\[gpu\]"):
        CudaBackend(CONFIG)


@pytest.fixture
def backend(monkeypatch):
    """The backend with matrices on the CPU: every operation checks its vectors before anything is launched."""
    hopper(monkeypatch)
    found = CudaBackend(CONFIG)
    monkeypatch.setattr(found, "load_matrix", lambda given: load_tiles(given, 4, CPU))
    return found


def test_a_vector_that_is_not_on_the_gpu_is_refused_by_name(backend):
    matrix, x, y = backend.load_matrix(parts(256)), torch.zeros(256), torch.zeros(256)
    for call in (
        lambda: backend.qkv(matrix, x, x, y, y),
        lambda: backend.o(matrix, x, y),
        lambda: backend.gate_up(matrix, x, x, y),
        lambda: backend.down(matrix, x, y),
        lambda: backend.lm_head(matrix, x, x, y, torch.zeros(1, dtype=torch.int64)),
    ):
        with pytest.raises(ValueError, match=r": found \(256,\) torch\.float32 on cpu, expected .* on the GPU"):
            call()
