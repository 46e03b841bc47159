// The activation of the tensor-core GEMV: from floats in memory to two signed bytes a number in shared memory.
#pragma once
#include "gemv_mma_ring.cuh"

// Four numbers of a group, lane after lane. Past the L1, which may hold what an earlier kernel wrote there.
__device__ __forceinline__ float4 load_four(const float* x, int i) {
    return __ldcg(reinterpret_cast<const float4*>(x + i));
}

__device__ __forceinline__ float4 load_four(const Half* x, int i) {
    const ushort4 bits = __ldcg(reinterpret_cast<const ushort4*>(x + i));
    return make_float4(to_float(bits.x), to_float(bits.y), to_float(bits.z), to_float(bits.w));
}

// Byte j of the result: byte `byte` of the j-th number.
__device__ __forceinline__ unsigned gather_bytes(const int (&v)[4], int byte) {
    const unsigned pick = byte | (4 + byte) << 4;
    return __byte_perm(__byte_perm(v[0], v[1], pick), __byte_perm(v[2], v[3], pick), 0x5410);
}

__device__ __forceinline__ unsigned magnitude(float x) { return __float_as_uint(x) & 0x7fffffffu; }

// Quantize one group, four numbers a lane, so that v = 256 * high + low, and store the bytes where fragments of the
// multiplication want them: in the order 0 4 1 5, 2 6 3 7 of the nibbles of a word (unpack_int8).
__device__ __forceinline__ void quantize_group(float4 x, unsigned char* bytes, float* scale) {
    // Without their sign, the order of the bits of floats is that of the numbers, with NaN above all.
    const unsigned largest_bits = __reduce_max_sync(~0u, max(max(magnitude(x.x), magnitude(x.y)),
                                                             max(magnitude(x.z), magnitude(x.w))));
    const float largest = __uint_as_float(largest_bits);
    const float factor = largest > kSmallest ? __fdividef(kLargest, largest) : 0.0f;
    // + 128: so that the low byte, read as signed, and the high byte add up.
    const int v[4] = {__float2int_rn(x.x * factor), __float2int_rn(x.y * factor), __float2int_rn(x.z * factor),
                      __float2int_rn(x.w * factor)};
    const int up[4] = {v[0] + 128, v[1] + 128, v[2] + 128, v[3] + 128};
    const unsigned low = gather_bytes(v, 0), high = gather_bytes(up, 1);
    // Two neighbours hold the eight numbers of a word: the even one keeps the high bytes, the odd one the low ones.
    const int lane = threadIdx.x % 32;
    const bool odd = lane % 2;
    const unsigned other = __shfl_xor_sync(~0u, odd ? high : low, 1);
    const unsigned first = odd ? other : high, second = odd ? low : other;
    const uint2 words = make_uint2(__byte_perm(first, second, 0x5140), __byte_perm(first, second, 0x7362));
    const int chunk = lane / 8, word = lane % 8 / 2;
    *reinterpret_cast<uint2*>(bytes + word / 2 * 128 + chunk * 32 + odd * 16 + word % 2 * 8) = words;
    if (lane == 0) *scale = largest * (1.0f / (16.0f * kLargest));  // unpack_int8 gives 16 times a weight
}

// The whole activation; with kNorm times the norm's weight. 1 / rms is a factor of all of it, so it can wait until the
// end: only the sum of squares is taken here. All loads of a batch are on their way before the first is used.
template <bool kNorm, int kBatch, typename Input>
__device__ __forceinline__ void quantize_activation(const Input* x, const float* norm, int groups,
                                                    const Shared& shared) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float squares = 0.0f;
#pragma unroll 1
    for (int first = warp; first < groups; first += kBatch * kWarps) {
        float4 values[kBatch], weights[kBatch];
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
            const int group = first + i * kWarps;
            if (group < groups) values[i] = load_four(x, group * kGroup + 4 * lane);
            if (kNorm && group < groups) weights[i] = load_four(norm, group * kGroup + 4 * lane);
        }
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
            const int group = first + i * kWarps;
            if (group >= groups) break;
            float4 v = values[i];
            if (kNorm) {
                squares += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
                v = make_float4(v.x * weights[i].x, v.y * weights[i].y, v.z * weights[i].z, v.w * weights[i].w);
            }
            quantize_group(v, shared.activation + group * kGroupBytes, shared.scales + group);
        }
    }
    if (kNorm) {
#pragma unroll 1
        for (int step = 16; step; step /= 2) squares += __shfl_xor_sync(~0u, squares, step);
        if (lane == 0) shared.squares[warp] = squares;
    }
}

template <bool kNorm>
__device__ __forceinline__ float inverse_rms(const Shared& shared, int groups, float eps) {
    if (!kNorm) return 1.0f;
    float sum = 0.0f;
    for (int warp = 0; warp < kWarps; ++warp) sum += shared.squares[warp];
    return rsqrtf(__fdividef(sum, groups * kGroup) + eps);
}
