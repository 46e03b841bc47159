"""A stand-in for the products on a Hopper GPU: the operations of CudaBackend, on the CPU and in float64."""

from torch.nn import functional as F

from lab_engine.gemv_token import product


class StandInBackend:
    """wrong(operation, result) -> result may spoil what an operation gives; calls: (operation, dependent)."""

    def __init__(self, config, wrong=lambda _, result: result):
        self.eps, self.wrong, self.calls = config.rms_norm_eps, wrong, []

    def load_matrix(self, parts):
        return list(parts)

    def load_vector(self, vector):
        return vector

    def qkv(self, matrix, h, norm, bias, out, *, dependent=False):
        out.copy_(self._done("qkv", product(matrix, self._norm(h, norm)) + bias, dependent))

    def o(self, matrix, x, h, *, dependent=False):
        h.copy_(self._done("o", h.double() + product(matrix, x), dependent))

    def gate_up(self, matrix, h, norm, out, *, dependent=False):
        gate, up = product(matrix, self._norm(h, norm)).chunk(2)
        out.copy_(self._done("gate_up", F.silu(gate) * up, dependent))

    def down(self, matrix, x, h, *, dependent=False):
        h.copy_(self._done("down", h.double() + product(matrix, x), dependent))

    def lm_head(self, matrix, h, norm, logits, token_id, *, dependent=False):
        logits.copy_(self._done("lm_head", product(matrix, self._norm(h, norm)), dependent))
        token_id.fill_(self.wrong("argmax", int(logits.argmax())))

    def _norm(self, h, weight):
        return F.rms_norm(h.double(), weight.shape, weight.double(), self.eps)

    def _done(self, operation, result, dependent):
        self.calls.append((operation, dependent))
        return self.wrong(operation, result)
