// The matrix-vector products of a decode step, each one kernel: what comes before and after a product is part of it.
#include "gemv_mma.cuh"

// y[row] = sum, or sum + bias[row].
struct Store {
    float* y;
    const float* bias;

    __device__ void prepare(const Shape&) {}
    __device__ void finish(const Shape& shape, const Shared& shared, float factor) const {
        for (int i = threadIdx.x; i < shape.rows * shape.tiles; i += kThreads) {
            const int row = shape.first_row() + i;
            if (row < shape.n) y[row] = factor * sum_row(shape, shared, i) + (bias ? bias[row] : 0.0f);
        }
    }
};

// h[row] += sum, one row a thread. The old number is on its way while the weights are multiplied.
struct AddTo {
    float* h;
    float old;

    __device__ void prepare(const Shape& shape) {
        const int row = shape.first_row() + threadIdx.x;
        old = threadIdx.x < shape.rows * shape.tiles && row < shape.n ? __ldcg(h + row) : 0.0f;
    }
    __device__ void finish(const Shape& shape, const Shared& shared, float) const {
        const int i = threadIdx.x, row = shape.first_row() + i;
        if (i < shape.rows * shape.tiles && row < shape.n) h[row] = old + sum_row(shape, shared, i);
    }
};

// Even rows are gate, odd ones up: y[row / 2] = silu(gate) * up.
struct Gate {
    float* y;

    __device__ void prepare(const Shape&) {}
    __device__ void finish(const Shape& shape, const Shared& shared, float factor) const {
        for (int i = 2 * threadIdx.x; i < shape.rows * shape.tiles; i += 2 * kThreads) {
            const int row = shape.first_row() + i;
            if (row >= shape.n) break;
            const float gate = factor * sum_row(shape, shared, i), up = factor * sum_row(shape, shared, i + 1);
            y[row / 2] = gate / (1.0f + __expf(-gate)) * up;
        }
    }
};

// A logit and its token as one integer: the larger integer is the larger logit, of equal ones the lower token. NaN is
// above all numbers, so that it is found.
__device__ __forceinline__ unsigned long long ranked(float logit, unsigned token) {
    const unsigned bits = __float_as_uint(logit + 0.0f);  // + 0: -0 and 0 are equal
    const unsigned order = isnan(logit) ? ~0u : bits >> 31 ? ~bits : bits | 0x80000000u;
    return static_cast<unsigned long long>(order) << 32 | ~token;
}

// y[row] = sum; best = the row of the largest. scratch: the best so far and the blocks that are through, 0 and 0 before
// and after. The maximum of integers does not depend on the order in which blocks come.
struct Argmax {
    float* y;
    long long* best;
    unsigned long long* scratch;

    __device__ void prepare(const Shape&) {}
    __device__ void finish(const Shape& shape, const Shared& shared, float factor) const {
        unsigned long long mine = 0;
        for (int i = threadIdx.x; i < shape.rows * shape.tiles; i += kThreads) {
            const int row = shape.first_row() + i;
            if (row >= shape.n) break;
            const float logit = factor * sum_row(shape, shared, i);
            y[row] = logit;
            mine = max(mine, ranked(logit, row));
        }
        for (int step = 16; step; step /= 2) mine = max(mine, __shfl_xor_sync(~0u, mine, step));
        if (threadIdx.x % 32 == 0) atomicMax(scratch, mine);
        __threadfence();
        sync_multipliers();
        if (threadIdx.x) return;
        const int blocks = (shape.n + shape.rows * shape.tiles - 1) / (shape.rows * shape.tiles);
        if (atomicAdd(scratch + 1, 1ull) + 1 < blocks) return;
        __threadfence();
        *best = static_cast<unsigned>(~atomicExch(scratch, 0ull));
        scratch[1] = 0;
    }
};

#define GEMV extern "C" __global__ void __launch_bounds__(kThreads + 32, BLOCKS_PER_SM)
#define SHAPE int n, int groups, int rows, int tiles, int slots, int window, int early
#define PLAN Shape{n, groups, rows, tiles}, Ring{slots, window, early}

GEMV gemv_plain(const unsigned char* weights, const Half* x, float* y, SHAPE) {
    gemv<false>(weights, x, nullptr, 0.0f, PLAN, Store{y, nullptr});
}

GEMV gemv_qkv(const unsigned char* weights, const float* x, const float* norm, float eps, const float* bias, float* y, SHAPE) {
    gemv<true>(weights, x, norm, eps, PLAN, Store{y, bias});
}

// Both o and down.
GEMV gemv_residual(const unsigned char* weights, const float* x, float* h, SHAPE) {
    gemv<false>(weights, x, nullptr, 0.0f, PLAN, AddTo{h, 0.0f});
}

GEMV gemv_gate_up(const unsigned char* weights, const float* x, const float* norm, float eps, float* y, SHAPE) {
    gemv<true>(weights, x, norm, eps, PLAN, Gate{y});
}

GEMV gemv_lm_head(const unsigned char* weights, const float* x, const float* norm, float eps, float* logits, long long* best,
                  unsigned long long* scratch, SHAPE) {
    gemv<true>(weights, x, norm, eps, PLAN, Argmax{logits, best, scratch});
}
