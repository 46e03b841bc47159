// Rung 1, naive: one thread a row, as one would write it in C. y = W x for an INT4 matrix.
//
//   words   (n, k / 8) in `value_shuffle`      x  fp16 (k)
//   scales  fp16 (n, k / 128)                  y  float32 (n)
//
// Neighbouring threads read words that lie a whole row apart. Of the 32 bytes that memory sends for one word, this load
// uses four; the rest is used seven loads later, if it is still in a cache.
#include "gemv_dot.cuh"

extern "C" __global__ void gemv_naive(const unsigned* __restrict__ words, const Half* __restrict__ scales,
                                      const Half* x, float* y, int n, int k) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const long long row = naive_row(blockIdx.x, warp, lane, 0);
    if (row >= n) return;
    float sum = 0;
    for (int i = 0; i < naive_iterations(k); ++i) {
        const long long offset = naive_offset(lane, i);
        const unsigned word = words[naive_byte(row, k, lane, i) / 4];
        float part = 0;
#pragma unroll
        for (int weight = 0; weight < 8; ++weight) {
            const int q = int(word >> 4 * nibble_of(weight) & 15) - 8;
            part += float(q) * to_float(x[weight_of(offset) + weight]);
        }
        sum += to_float(load_scale(scales, row, k, group_of(offset))) * part;
    }
    y[row] = sum;
}
