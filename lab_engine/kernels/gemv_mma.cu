// The matrix-vector products of a decode step, each one kernel: what comes before and after a product is part of it.
#include "gemv_mma.cuh"

// y[row] = sum, or sum + bias[row].
struct Store {
    float* y;
    const float* bias;

    __device__ void prepare(const Shape&) {}
    __device__ void finish(const Shape& shape, const Shared& shared, float factor) const {
#pragma unroll 1
        for (int place = threadIdx.x; place < shape.places(); place += kThreads) {
            const int row = row_at(shape, place);
            if (row >= 0) y[row] = factor * sum_row(shape, shared, place) + (bias ? bias[row] : 0.0f);
        }
    }
};

// h[row] += sum. The old number of a thread's first row is on its way while the weights are multiplied.
struct AddTo {
    float* h;
    float old;

    __device__ void prepare(const Shape& shape) {
        const int row = row_at(shape, threadIdx.x);
        if (threadIdx.x < shape.places() && row >= 0) old = __ldcg(h + row);
    }
    __device__ void finish(const Shape& shape, const Shared& shared, float) const {
#pragma unroll 1
        for (int place = threadIdx.x; place < shape.places(); place += kThreads) {
            const int row = row_at(shape, place);
            if (row >= 0) h[row] = (place < kThreads ? old : __ldcg(h + row)) + sum_row(shape, shared, place);
        }
    }
};

// Even rows are gate, odd ones up: y[row / 2] = silu(gate) * up.
struct Gate {
    float* y;

    __device__ void prepare(const Shape&) {}
    __device__ void finish(const Shape& shape, const Shared& shared, float factor) const {
#pragma unroll 1
        for (int place = 2 * threadIdx.x; place < shape.places(); place += 2 * kThreads) {
            const int row = row_at(shape, place);
            if (row < 0) continue;
            const float gate = factor * sum_row(shape, shared, place), up = factor * sum_row(shape, shared, place + 1);
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
#pragma unroll 1
        for (int place = threadIdx.x; place < shape.places(); place += kThreads) {
            const int row = row_at(shape, place);
            if (row < 0) continue;
            const float logit = factor * sum_row(shape, shared, place);
            y[row] = logit;
            mine = max(mine, ranked(logit, row));
        }
#pragma unroll 1
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

#define GEMV extern "C" __global__ void __launch_bounds__(kThreads + 32, 1)
#define PLAN int n, int groups, int rows, int tiles, int slots, int window
#define WHOLE Shape{n, groups, rows, tiles, 1}, Ring{slots, window}
#define SPLIT Shape{n, groups, rows, tiles, kParts}, Ring{slots, window}

// Groups that a warp quantizes at a time: enough for one trip to the L2, and no more code than that.
constexpr int kShort = 2, kLong = 5;

GEMV gemv_plain(const unsigned char* weights, const Half* x, float* y, PLAN) {
    gemv<false, kShort>(weights, x, nullptr, 0.0f, WHOLE, Store{y, nullptr});
}

// The _split forms take long rows; apart, so that the others hold no code for clusters.
GEMV gemv_plain_split(const unsigned char* weights, const Half* x, float* y, PLAN) {
    gemv<false, kLong>(weights, x, nullptr, 0.0f, SPLIT, Store{y, nullptr});
}

GEMV gemv_qkv(const unsigned char* weights, const float* x, const float* norm, float eps, const float* bias, float* y,
              PLAN) {
    gemv<true, kShort>(weights, x, norm, eps, WHOLE, Store{y, bias});
}

// o, and down where its rows are short.
GEMV gemv_residual(const unsigned char* weights, const float* x, float* h, PLAN) {
    gemv<false, kShort>(weights, x, nullptr, 0.0f, WHOLE, AddTo{h, 0.0f});
}

GEMV gemv_residual_split(const unsigned char* weights, const float* x, float* h, PLAN) {
    gemv<false, kLong>(weights, x, nullptr, 0.0f, SPLIT, AddTo{h, 0.0f});
}

GEMV gemv_gate_up(const unsigned char* weights, const float* x, const float* norm, float eps, float* y, PLAN) {
    gemv<true, kShort>(weights, x, norm, eps, WHOLE, Gate{y});
}

GEMV gemv_lm_head(const unsigned char* weights, const float* x, const float* norm, float eps, float* logits,
                  long long* best, unsigned long long* scratch, PLAN) {
    gemv<true, kShort>(weights, x, norm, eps, WHOLE, Argmax{logits, best, scratch});
}
