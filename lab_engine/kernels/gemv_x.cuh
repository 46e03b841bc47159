// x in shared memory, where the kernels that give a warp several rows read it once for all of them.
#pragma once

#include "gemv_dot.cuh"

// Thread `thread` of `threads` copies its share; every piece goes to x_place(piece). The caller waits for all threads.
__device__ __forceinline__ void copy_x(const Half* x, uint4* shared, int k, int thread, int threads) {
    for (int piece = thread; piece < k / 8; piece += threads) {
        shared[x_place(piece)] = reinterpret_cast<const uint4*>(x)[piece];
    }
}
