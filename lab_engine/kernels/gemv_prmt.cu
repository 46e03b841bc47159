// Rung 4, prmt: lop3's kernel with the other way to unpack: the nibbles look up the high bytes of fp16 -8 to 7. It reads
// `linear` words, the order in which one would pack by hand, and pays more instructions for that.
//
//   words (n, k / 8) in `linear`, scales fp16 (n, k / 128), x fp16 (k) -> y float32 (n)
#include "gemv_dot.cuh"

extern "C" __global__ void gemv_prmt(const unsigned* __restrict__ words, const Half* __restrict__ scales,
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
        sum += to_float(load_scale(scales, row, k, group_of(offset))) * dot32(unpack_prmt, packed, pieces, 1);
    }
    sum = warp_sum(sum);
    if (lane == 0) y[row] = sum;
}
