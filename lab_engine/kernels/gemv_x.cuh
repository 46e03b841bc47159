// What the kernels that give a warp several rows share: x in shared memory, read once for all of them, and scales that
// the lanes load for each other.
#pragma once

#include "gemv_dot.cuh"

// Thread `thread` of `threads` copies its share, kFlight loads in flight; every piece goes to x_place(piece). Behind the
// last one follow zeros up to x_bytes(k): the lanes that a row leaves idle multiply by them, and need no branch. The
// caller waits for all threads.
__device__ __forceinline__ void copy_x(const Half* x, uint4* shared, unsigned k, unsigned thread, unsigned threads) {
    constexpr int kFlight = 4;
    for (unsigned first = thread; first < x_bytes(k) / 16; first += kFlight * threads) {
        uint4 flying[kFlight] = {};
#pragma unroll
        for (int j = 0; j < kFlight; ++j) {
            const unsigned piece = first + j * threads;
            if (piece < k / 8) flying[j] = reinterpret_cast<const uint4*>(x)[piece];
        }
#pragma unroll
        for (int j = 0; j < kFlight; ++j) {
            const unsigned piece = first + j * threads;
            if (piece < x_bytes(k) / 16) shared[x_place(piece)] = flying[j];
        }
    }
}

// A batch: four iterations of 512 bytes a row, so 32 groups, as many as a warp has lanes. Lane i loads the scale of the
// batch's group i, and 0 where the row has no such group; own_scale then fetches that of iteration b from its lane.
constexpr int kBatch = 4;

__device__ __forceinline__ Half load_scales(const Half* __restrict__ scales, long long row, int n, int k, int batch,
                                            int lane) {
    const int group = batch * 32 + lane;
    return row < n && group < k / 128 ? load_scale(scales, row, k, group) : Half(0);
}

__device__ __forceinline__ float own_scale(Half loaded, int lane, int b) {
    return __shfl_sync(0xffffffff, to_float(loaded), int(group_of(rows_offset(lane, b))));
}
