// Rung 3, lop3: reads as coalesced does, and turns two nibbles at a time into fp16 by logic, without a conversion
// (unpack.cuh says how). Two products a multiply-add, at most four of them added in fp16, all else in float32.
//
//   words (n, k / 8) in `value_shuffle`, scales fp16 (n, k / 128), x fp16 (k) -> y float32 (n)
#include "gemv_dot.cuh"

extern "C" __global__ void gemv_lop3(const unsigned* __restrict__ words, const Half* __restrict__ scales,
                                     const Half* x, float* y, int n, int k) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const long long row = coalesced_row(blockIdx.x, warp, lane, 0);
    if (row >= n) return;
    float sum = 0;
    for (int i = 0; i < coalesced_iterations(k); ++i) {
        if (!coalesced_active(k, lane, i)) break;
        const long long offset = coalesced_offset(lane, i);
        const uint4 packed = load16(words, coalesced_byte(row, k, lane, i));
        const uint4* pieces = reinterpret_cast<const uint4*>(x + weight_of(offset));
        sum += to_float(load_scale(scales, row, k, group_of(offset))) * dot32(unpack_lop3, packed, pieces, 1);
    }
    sum = warp_sum(sum);
    if (lane == 0) y[row] = sum;
}
