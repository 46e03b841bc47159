// x in shared memory, where the kernels that give a warp several rows read it once for all of them.
#pragma once

#include "gemv_dot.cuh"

// Thread `thread` of `threads` copies its share; every piece goes to x_place(piece). Behind the last one follow zeros up
// to x_bytes(k): the lanes that a row leaves idle multiply by them, and need no branch. The caller waits for all threads.
__device__ __forceinline__ void copy_x(const Half* x, uint4* shared, int k, int thread, int threads) {
#pragma unroll 1
    for (int piece = thread; piece < x_bytes(k) / 16; piece += threads) {
        shared[x_place(piece)] = piece < k / 8 ? reinterpret_cast<const uint4*>(x)[piece] : uint4{};
    }
}
