// Rung 5, rows: a warp several rows. A piece of x that was read serves all of them; x lies in shared memory, copied once
// a block, and a block takes tile after tile of rows. Before the first product, the loads of four iterations of all rows
// are on their way: while one waits for memory, the others wait too, not one after another.
//
//   words (n, k / 8) in `value_shuffle`, scales fp16 (n, k / 128), x fp16 (k) -> y float32 (n)
//   shared memory: x_bytes(k)       blocks: at most one a tile
#include "gemv_x.cuh"

constexpr int kRows = rows_rows();

extern "C" __global__ void __launch_bounds__(32 * rows_warps(), rows_blocks())
gemv_rows(const unsigned* __restrict__ words, const Half* __restrict__ scales, const Half* x, float* y, int n, int k) {
    extern __shared__ uint4 pieces[];
    const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    bool ready = false;
    for (unsigned tile = blockIdx.x; rows_row(tile, 0, 0, 0) < n; tile += gridDim.x) {
        float sums[kRows] = {};
        for (unsigned batch = 0; batch * kBatch < rows_iterations(k); ++batch) {
            uint4 packed[kBatch][kRows] = {};
            Half loaded[kRows];
#pragma unroll
            for (int j = 0; j < kRows; ++j) {
                const long long row = rows_row(tile, warp, lane, j);
                loaded[j] = load_scales(scales, row, n, k, batch, lane);
#pragma unroll
                for (int b = 0; b < kBatch; ++b) {
                    const unsigned i = batch * kBatch + b;
                    if (row < n && rows_active(k, lane, i)) packed[b][j] = load16(words, rows_byte(row, k, lane, i));
                }
            }
            if (!ready) {  // x is fetched while the first weights are on their way
                copy_x(x, pieces, k, threadIdx.x, blockDim.x);
                __syncthreads();
                ready = true;
            }
#pragma unroll
            for (int b = 0; b < kBatch; ++b) {
                const uint4* own = pieces + (batch * kBatch + b) * 128 + lane;
#pragma unroll
                for (int j = 0; j < kRows; ++j) {
                    sums[j] += own_scale(loaded[j], lane, b) * dot32(unpack_lop3, packed[b][j], own, 32);
                }
            }
        }
#pragma unroll
        for (int j = 0; j < kRows; ++j) {
            const long long row = rows_row(tile, warp, lane, j);
            const float sum = warp_sum(sums[j]);
            if (lane == 0 && row < n) y[row] = sum;
        }
    }
}
