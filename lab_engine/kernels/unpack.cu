// Kernels that run the four ways of unpack.cuh: on words in memory, and again and again in registers for timing.
#include "unpack.cuh"

// 16 and 32 unpackings a turn of the loop: what the compiled code of the second has more is 16 unpackings, nothing else.
constexpr int kShort = 16;
constexpr int kLong = 32;

// Unpack word after word in registers. The next word depends on all four results, so that none can be left out:
// that costs two instructions (a three-way XOR each) a word beside the unpacking.
template <int kWords, typename Unpack>
__device__ unsigned unpack_in_registers(unsigned word, int rounds, Unpack unpack) {
    for (int round = 0; round < rounds; ++round) {
#pragma unroll
        for (int i = 0; i < kWords; ++i) {
            unsigned h0, h1, h2, h3;
            unpack(word, h0, h1, h2, h3);
            word ^= h0 ^ h1 ^ h2 ^ h3;
        }
    }
    return word;
}

// spans[block]: the SM that it ran on, and that SM's clock before its first and after its last word.
struct Span {
    long long sm, start, stop;
};

template <int kWords, typename Unpack>
__device__ void time_unpack(int rounds, unsigned* words, Span* spans, Unpack unpack) {
    const int thread = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned word = words[thread];
    __syncthreads();
    const long long start = clock64();
    word = unpack_in_registers<kWords>(word, rounds, unpack);
    __syncthreads();
    const long long stop = clock64();
    words[thread] = word;
    if (threadIdx.x == 0) {
        unsigned sm;
        asm("mov.u32 %0, %%smid;" : "=r"(sm));
        spans[blockIdx.x] = {sm, start, stop};
    }
}

// words_NAME: halves[i] = the eight fp16 of words[i], weight 0 first; one thread a word.
// loop16_NAME, loop32_NAME: `rounds` times 16 or 32 words a thread, in registers.
#define UNPACK_KERNELS(NAME)                                                               \
    extern "C" __global__ void words_##NAME(const unsigned* words, uint4* halves, int n) { \
        const int i = blockIdx.x * blockDim.x + threadIdx.x;                               \
        if (i >= n) return;                                                                \
        uint4 eight;                                                                       \
        unpack_##NAME(words[i], eight.x, eight.y, eight.z, eight.w);                       \
        halves[i] = eight;                                                                 \
    }                                                                                      \
    extern "C" __global__ void loop16_##NAME(int rounds, unsigned* words, Span* spans) {   \
        time_unpack<kShort>(rounds, words, spans, unpack_##NAME);                          \
    }                                                                                      \
    extern "C" __global__ void loop32_##NAME(int rounds, unsigned* words, Span* spans) {   \
        time_unpack<kLong>(rounds, words, spans, unpack_##NAME);                           \
    }

UNPACK_KERNELS(shift_mask)
UNPACK_KERNELS(lop3)
UNPACK_KERNELS(prmt)
UNPACK_KERNELS(prmt_bit3)

// The bare instruction: out[i] = prmt(a, b, i), for selectors 0 to n - 1.
extern "C" __global__ void raw_prmt(unsigned a, unsigned b, unsigned* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) asm("prmt.b32 %0, %1, %2, %3;" : "=r"(out[i]) : "r"(a), "r"(b), "r"(i));
}
