// INT4 weights times INT8 activations: dp4a multiplies four pairs of bytes and adds them to an int32.
//
//   words (n, k / 8) in `value_shuffle`, scales fp16 (n, k / 128), x fp16 (k) -> y float32 (n)
//   a quantized x: activation_bytes(k) bytes, as quantize<limbs> writes them; shared memory of a GEMV: as many
//
// Every group of 128 numbers of x gets one scale. With one limb a number becomes -127..127. With two it becomes
// v = 256 * high + low in -32512..32512, both signed bytes: -12345 = 256 * (-48) - 57. Four products with each, and
// 256 * (sum with high) + (sum with low) is the exact product with v.
//
// A lane's 32 weights lie in one group and give an exact int32. Sums of those are float32, in an order that never
// changes. Rows, lanes and batches are those of gemv_rows.cu. A block takes tile after tile, so that it prepares x once,
// and its first weights are on their way meanwhile.
#include "gemv_x.cuh"
#include "nibbles.cuh"

constexpr int kRows = rows_rows(), kThreads = 32 * rows_warps();
constexpr unsigned kEveryLane = 0xffffffff;

// A quantized x. limbs: pieces of 16 codes, [high limb][low limb] or the only one, code_pieces(k) each; scales: one
// float a group, divided by the 16 that unpack_int8 leaves in the weights. A word of eight weights has weights 0 4 1 5 in
// one register and 2 6 3 7 in the other, so each run of eight codes lies in that order. Up to whole 1024 follow zeros,
// which idle lanes multiply by.
struct Activation {
    uint4* limbs;
    float* scales;
};

__host__ __device__ constexpr int code_groups(int k) { return (k + 1023) / 1024 * 8; }
__host__ __device__ constexpr int code_pieces(int k) { return code_groups(k) * 8; }

// A lane needs pieces 2 * lane and 2 * lane + 1 of each 64. Its j-th lies in place 32 * j + lane, as x_place does it.
__device__ __forceinline__ int code_place(int piece) { return piece / 64 * 64 + piece % 2 * 32 + piece % 64 / 2; }

template <int kLimbs>
__device__ __forceinline__ Activation activation_at(uint4* memory, int k) {
    return {memory, reinterpret_cast<float*>(memory + kLimbs * code_pieces(k))};
}

__device__ __forceinline__ float larger_or_nan(float a, float b) {
    float result;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
    return result;
}

// The lowest bytes of four registers, the first lowest.
__device__ __forceinline__ unsigned four_bytes(int a, int b, int c, int d) {
    return __byte_perm(__byte_perm(a, b, 0x0040), __byte_perm(c, d, 0x0040), 0x5410);
}

__device__ __forceinline__ uint2 eight_codes(const int (&v)[8]) {
    return {four_bytes(v[0], v[4], v[1], v[5]), four_bytes(v[2], v[6], v[3], v[7])};
}

// Half a warp quantizes a group, eight numbers a lane. `warp` of `warps`: this warp among those that share x.
// A NaN or inf in a group makes its scale NaN or inf, and so every y.
template <int kLimbs>
__device__ __forceinline__ void quantize(const Half* x, Activation out, int k, int warp, int warps) {
    constexpr float kLargest = kLimbs == 1 ? 127 : 32512;
    const int lane = threadIdx.x % 16;
#pragma unroll 2
    for (int first = 2 * warp; first < code_groups(k); first += 2 * warps) {
        const int group = first + threadIdx.x % 32 / 16, run = group * 16 + lane;
        const uint4 eight = group < k / 128 ? reinterpret_cast<const uint4*>(x)[run] : uint4{};
        const float2 pairs[4] = {to_float2(eight.x), to_float2(eight.y), to_float2(eight.z), to_float2(eight.w)};
        float largest = 0;
#pragma unroll
        for (float2 pair : pairs) largest = larger_or_nan(largest, larger_or_nan(fabsf(pair.x), fabsf(pair.y)));
#pragma unroll
        for (int distance = 8; distance > 0; distance /= 2) {
            largest = larger_or_nan(largest, __shfl_xor_sync(kEveryLane, largest, distance));
        }
        const float inverse = largest > 0 ? kLargest / largest : 0;
        int v[8];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            v[2 * i] = __float2int_rn(pairs[i].x * inverse);
            v[2 * i + 1] = __float2int_rn(pairs[i].y * inverse);
        }
        uint2* codes = reinterpret_cast<uint2*>(out.limbs + code_place(run / 2)) + run % 2;
        codes[(kLimbs - 1) * 2 * code_pieces(k)] = eight_codes(v);  // of two limbs the low one: the lowest byte
        if (kLimbs == 2) {
#pragma unroll
            for (int& number : v) number = (number + 128) >> 8;
            codes[0] = eight_codes(v);
        }
        if (lane == 0) out.scales[group] = largest / (16 * kLargest);
    }
}

// What a lane reads in a batch of four iterations, all of it before the first is used. Idle lanes and rows get zeros.
struct Batch {
    uint4 packed[kBatch][kRows];
    Half scales[kRows];

    __device__ __forceinline__ void load(const unsigned* __restrict__ words, const Half* __restrict__ all_scales, int n,
                                         int k, int tile, int batch) {
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
        for (int j = 0; j < kRows; ++j) {
            const long long row = rows_row(tile, warp, lane, j);
            scales[j] = load_scales(all_scales, row, n, k, batch, lane);
#pragma unroll
            for (int b = 0; b < kBatch; ++b) {
                const int i = batch * kBatch + b;
                const bool active = row < n && rows_active(k, lane, i);
                packed[b][j] = active ? load16(words, rows_byte(row, k, lane, i)) : uint4{};
            }
        }
    }
};

// 16 * (the sum of 32 products of codes), exact. x: of each limb, this lane's two pieces.
template <int kLimbs>
__device__ __forceinline__ int dot32_codes(uint4 packed, const uint4 (&x)[kLimbs][2]) {
    const unsigned words[4] = {packed.x, packed.y, packed.z, packed.w};
    int sums[kLimbs] = {};
#pragma unroll
    for (int w = 0; w < 4; ++w) {
        unsigned low, high;
        unpack_int8(words[w], low, high);
#pragma unroll
        for (int limb = 0; limb < kLimbs; ++limb) {
            const uint4 codes = x[limb][w / 2];
            sums[limb] = __dp4a(int(low), int(w % 2 ? codes.z : codes.x), sums[limb]);
            sums[limb] = __dp4a(int(high), int(w % 2 ? codes.w : codes.y), sums[limb]);
        }
    }
    return kLimbs == 1 ? sums[0] : 256 * sums[0] + sums[kLimbs - 1];
}

template <int kLimbs>
__device__ __forceinline__ void multiply(const Batch& own, Activation x, int k, int batch, float (&sums)[kRows]) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
        const int i = batch * kBatch + b;
        if (i >= rows_iterations(k)) break;
        uint4 codes[kLimbs][2];
#pragma unroll
        for (int limb = 0; limb < kLimbs; ++limb) {
            const uint4* pieces = x.limbs + limb * code_pieces(k) + i * 64 + lane;
            codes[limb][0] = pieces[0];
            codes[limb][1] = pieces[32];
        }
        const float x_scale = x.scales[group_of(rows_offset(lane, i))];
#pragma unroll
        for (int j = 0; j < kRows; ++j) {
            const float scale = own_scale(own.scales[j], lane, b) * x_scale;
            sums[j] += float(dot32_codes(own.packed[b][j], codes)) * scale;
        }
    }
}

__device__ __forceinline__ void store(float (&sums)[kRows], float* y, int n, int tile) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int j = 0; j < kRows; ++j) {
        const long long row = rows_row(tile, warp, lane, j);
        const float sum = warp_sum(sums[j]);
        if (lane == 0 && row < n) y[row] = sum;
    }
}

// prepare(memory) leaves a quantized x there; it runs once a block, behind the first loads. Every block has a tile.
template <int kLimbs, typename Prepare>
__device__ __forceinline__ void gemv(const unsigned* __restrict__ words, const Half* __restrict__ scales, float* y,
                                     int n, int k, Prepare prepare) {
    extern __shared__ uint4 memory[];
    bool ready = false;
    for (int tile = blockIdx.x; rows_row(tile, 0, 0, 0) < n; tile += gridDim.x) {
        float sums[kRows] = {};
        for (int batch = 0; batch * kBatch < rows_iterations(k); ++batch) {
            Batch own;
            own.load(words, scales, n, k, tile, batch);
            if (!ready) {
                prepare(memory);
                __syncthreads();
                ready = true;
            }
            multiply<kLimbs>(own, activation_at<kLimbs>(memory, k), k, batch, sums);
        }
        store(sums, y, n, tile);
    }
}

// gemv_dp4a_*_given: x comes quantized, from gemv_quantize_*. The others quantize the fp16 x in every block.
template <int kLimbs>
__device__ __forceinline__ void gemv_given(const unsigned* words, const Half* scales, const uint4* x, float* y, int n,
                                           int k) {
    gemv<kLimbs>(words, scales, y, n, k, [=](uint4* memory) {
        const int codes = kLimbs * code_pieces(k);
#pragma unroll 1
        for (int i = threadIdx.x; i < codes + code_groups(k) / 4; i += kThreads) memory[i] = x[i];  // and the scales
    });
}

template <int kLimbs>
__device__ __forceinline__ void gemv_fused(const unsigned* words, const Half* scales, const Half* x, float* y, int n,
                                           int k) {
    gemv<kLimbs>(words, scales, y, n, k, [=](uint4* memory) {
        quantize<kLimbs>(x, activation_at<kLimbs>(memory, k), k, threadIdx.x / 32, rows_warps());
    });
}

template <int kLimbs>
__device__ __forceinline__ void quantize_alone(const Half* x, uint4* out, int k) {
    const int warp = blockIdx.x * rows_warps() + threadIdx.x / 32;
    quantize<kLimbs>(x, activation_at<kLimbs>(out, k), k, warp, gridDim.x * rows_warps());
}

#define KERNEL extern "C" __global__ void __launch_bounds__(kThreads, rows_blocks())
#define WEIGHTS const unsigned *__restrict__ words, const Half *__restrict__ scales

KERNEL gemv_dp4a_separate(WEIGHTS, const uint4* x, float* y, int n, int k) { gemv_given<1>(words, scales, x, y, n, k); }
KERNEL gemv_dp4a_fused(WEIGHTS, const Half* x, float* y, int n, int k) { gemv_fused<1>(words, scales, x, y, n, k); }
KERNEL gemv_dp4a_limbs(WEIGHTS, const Half* x, float* y, int n, int k) { gemv_fused<2>(words, scales, x, y, n, k); }
KERNEL gemv_dp4a_limbs_given(WEIGHTS, const uint4* x, float* y, int n, int k) { gemv_given<2>(words, scales, x, y, n, k); }

KERNEL gemv_quantize_int8(const Half* x, uint4* out, int k) { quantize_alone<1>(x, out, k); }
KERNEL gemv_quantize_limbs(const Half* x, uint4* out, int k) { quantize_alone<2>(x, out, k); }

// To place the time: the same loads and nothing else. seen[row]: all words and scales of a warp's rows, XORed together.
KERNEL read_rows(WEIGHTS, unsigned* seen, int n, int k) {
    for (int tile = blockIdx.x; rows_row(tile, 0, 0, 0) < n; tile += gridDim.x) {
        unsigned sum = 0;
        for (int batch = 0; batch * kBatch < rows_iterations(k); ++batch) {
            Batch own;
            own.load(words, scales, n, k, tile, batch);
#pragma unroll
            for (int i = 0; i < kBatch * kRows; ++i) {
                const uint4 four = own.packed[i / kRows][i % kRows];
                sum ^= four.x ^ four.y ^ four.z ^ four.w;
            }
#pragma unroll
            for (Half scale : own.scales) sum ^= scale;
        }
        sum = __reduce_xor_sync(kEveryLane, sum);
        const long long row = rows_row(tile, threadIdx.x / 32, 0, 0);
        if (threadIdx.x % 32 == 0 && row < n) seen[row] = sum;
    }
}
