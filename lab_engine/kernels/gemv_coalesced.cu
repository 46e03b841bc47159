// Rung 2, coalesced: a warp a row. Lane after lane reads the next 16 bytes, so that a warp's load is 512 neighbouring
// bytes, and memory sends no byte in vain. The 32 lanes then add up their sums.
//
//   words (n, k / 8) in `value_shuffle`, scales fp16 (n, k / 128), x fp16 (k) -> y float32 (n)
#include "gemv_dot.cuh"

__device__ __forceinline__ float dot8_in_c(unsigned word, uint4 piece) {
    const unsigned pairs[4] = {piece.x, piece.y, piece.z, piece.w};
    float part = 0;
#pragma unroll
    for (int weight = 0; weight < 8; ++weight) {
        const int q = int(word >> 4 * nibble_of(weight) & 15) - 8;
        const float2 two = to_float2(pairs[weight / 2]);
        part += float(q) * (weight % 2 ? two.y : two.x);
    }
    return part;
}

extern "C" __global__ void gemv_coalesced(const unsigned* __restrict__ words, const Half* __restrict__ scales,
                                          const Half* x, float* y, int n, int k) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const long long row = coalesced_row(blockIdx.x, warp, lane, 0);
    if (row >= n) return;
    float sum = 0;
    for (int i = 0; i < coalesced_iterations(k); ++i) {
        if (!coalesced_active(k, lane, i)) break;  // a row may end before the last lane's 16 bytes
        const long long offset = coalesced_offset(lane, i);
        const uint4 packed = load16(words, coalesced_byte(row, k, lane, i));
        const uint4* pieces = reinterpret_cast<const uint4*>(x + weight_of(offset));
        const float part = dot8_in_c(packed.x, pieces[0]) + dot8_in_c(packed.y, pieces[1]) +
                           dot8_in_c(packed.z, pieces[2]) + dot8_in_c(packed.w, pieces[3]);
        sum += to_float(load_scale(scales, row, k, group_of(offset))) * part;
    }
    sum = warp_sum(sum);
    if (lane == 0) y[row] = sum;
}
