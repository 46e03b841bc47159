// What the GEMV kernels share: fp16 numbers by their bits, products of weights with x, sums over a warp.
#pragma once

#include "gemv_index.cuh"
#include "unpack.cuh"

// The 16 bits of an fp16 number. CUDA's own header for them is not part of NVRTC, and these few lines are all we need.
using Half = unsigned short;

__device__ __forceinline__ float to_float(Half number) {
    float result;
    asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(number));
    return result;
}

// Two fp16 in a register: as floats, times two others, and a * b + c; each of the two rounded once.
__device__ __forceinline__ float2 to_float2(unsigned pair) {
    return make_float2(to_float(Half(pair & 0xffff)), to_float(Half(pair >> 16)));
}

__device__ __forceinline__ unsigned mul2(unsigned a, unsigned b) {
    unsigned result;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
    return result;
}

__device__ __forceinline__ unsigned fma2(unsigned a, unsigned b, unsigned c) {
    unsigned result;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
    return result;
}

// Nibbles 0 to 7 of a `value_shuffle` word hold weights 0 2 4 6 1 3 5 7.
__device__ constexpr int nibble_of(int weight) { return weight / 2 + weight % 2 * 4; }

// The 16 bytes at `offset` of the packed tensor, four words; and the scale of a row's group.
__device__ __forceinline__ uint4 load16(const unsigned* __restrict__ words, long long offset) {
    return *reinterpret_cast<const uint4*>(reinterpret_cast<const char*>(words) + offset);
}

__device__ __forceinline__ Half load_scale(const Half* __restrict__ scales, long long row, int k, long long group) {
    return scales[row * (k / 128) + group];
}

// Eight weights times eight x, four products in each half of a register: fp16 holds such a sum while |x| < 2047.
__device__ __forceinline__ float dot8(unsigned h0, unsigned h1, unsigned h2, unsigned h3, uint4 x) {
    const float2 sums = to_float2(fma2(h3, x.w, fma2(h2, x.z, fma2(h1, x.y, mul2(h0, x.x)))));
    return sums.x + sums.y;
}

// The 32 weights of 16 bytes times four pieces of x, pieces[0], pieces[stride], ...: float32 from word to word.
template <typename Unpack>
__device__ __forceinline__ float dot32(Unpack unpack, uint4 packed, const uint4* pieces, int stride) {
    const unsigned words[4] = {packed.x, packed.y, packed.z, packed.w};
    float sum = 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        unsigned h0, h1, h2, h3;
        unpack(words[j], h0, h1, h2, h3);
        sum += dot8(h0, h1, h2, h3, pieces[j * stride]);
    }
    return sum;
}

// The sum of a number over the 32 lanes, in an order that never changes.
__device__ __forceinline__ float warp_sum(float number) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
        number += __shfl_xor_sync(0xffffffff, number, distance);
    }
    return number;
}
