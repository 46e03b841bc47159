// Rung 6, ring: the copy engine brings the weights. One thread, the producer, asks for stage after stage with
// cp.async.bulk, which needs no registers and no lanes; a warp takes its stage from shared memory when it is there. A
// slot of the ring is free again as soon as its bytes are in registers, so that the next copy flies during the products.
//
// Two mbarriers a slot: `full` waits for the bytes of a copy, `empty` for the warp that takes them. Who waits names the
// parity of a turn, and a barrier knows only this turn from the last: so a slot belongs to one warp, which sees all turns.
//
//   words (n, k / 8) in `value_shuffle`, scales fp16 (n, k / 128), x fp16 (k) -> y float32 (n)
//   shared memory: x_bytes(k) + ring_slot(ring_warps())       threads: 32 * (ring_warps() + 1)       Hopper only
#include "gemv_x.cuh"

constexpr int kRows = ring_rows(), kWarps = ring_warps();
static_assert(ring_chunk() == kBatch * 512);

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
    return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ void init(unsigned barrier, unsigned arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void wait(unsigned barrier, unsigned parity) {
    unsigned done;
    do {
        asm volatile(R"({
            .reg .pred passed;
            mbarrier.try_wait.parity.shared::cta.b64 passed, [%1], %2;
            selp.u32 %0, 1, 0, passed;
        })" : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
    } while (!done);
}

__device__ __forceinline__ void arrive(unsigned barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void arrive_and_expect(unsigned barrier, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// Global to shared memory, a multiple of 16 bytes; `barrier` counts them as they arrive.
__device__ __forceinline__ void bulk_copy(unsigned to, const char* from, unsigned bytes, unsigned barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 ::"r"(to), "l"(from), "r"(bytes), "r"(barrier) : "memory");
}

// One thread walks through all stages of the block: waits until the slot is empty, and asks for the bytes of the next.
__device__ void produce(const unsigned* __restrict__ words, int n, int k, char* ring, const unsigned long long* full,
                        const unsigned long long* empty) {
    const int rounds = ring_rounds(blockIdx.x, gridDim.x, n), chunks = ring_chunks(k), copied = ring_copy_rows(k);
    const long long last_tile = ring_first_tile(blockIdx.x + 1, gridDim.x, n);
    for (int round = 0; round < rounds; ++round) {
        for (int chunk = 0; chunk < chunks; ++chunk) {
            const unsigned turn = round * chunks + chunk;
            const int length = ring_length(k, chunk);
#pragma unroll 1
            for (int warp = 0; warp < kWarps; ++warp) {
                const long long tile = ring_tile(blockIdx.x, gridDim.x, n, round, warp);
                const int rows = tile < last_tile ? min(kRows, n - int(ring_row(tile, 0))) : 0;
                const unsigned barrier = shared_address(&full[warp]);
                wait(shared_address(&empty[warp]), turn % 2 ^ 1);  // passes at once in the first turn
                arrive_and_expect(barrier, rows * length);
                for (int j = 0; j < rows; j += copied) {
                    bulk_copy(shared_address(ring + ring_slot(warp) + j * length),
                              reinterpret_cast<const char*>(words) + ring_byte(ring_row(tile, j), k, chunk),
                              min(copied, rows - j) * length, barrier);
                }
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(32 * (kWarps + 1), 1)
gemv_ring(const unsigned* __restrict__ words, const Half* __restrict__ scales, const Half* x, float* y, int n, int k) {
    extern __shared__ __align__(128) uint4 pieces[];
    __shared__ unsigned long long full[kWarps], empty[kWarps];
    char* ring = reinterpret_cast<char*>(pieces) + x_bytes(k);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x < kWarps) {
        init(shared_address(&full[threadIdx.x]), 1);    // the producer, and then the bytes it asked for
        init(shared_address(&empty[threadIdx.x]), 32);  // all lanes of the warp
    }
    __syncthreads();
    if (warp == kWarps) {
        if (lane == 0) produce(words, n, k, ring, full, empty);
        return;
    }

    const int rounds = ring_rounds(blockIdx.x, gridDim.x, n), chunks = ring_chunks(k);
    const long long first_tile = ring_first_tile(blockIdx.x, gridDim.x, n);
    const long long last_tile = ring_first_tile(blockIdx.x + 1, gridDim.x, n);
    Half next[kRows];
#pragma unroll
    for (int j = 0; j < kRows; ++j) {
        next[j] = load_scales(scales, ring_row(first_tile + warp, j), n, k, 0, lane);
    }
    copy_x(x, pieces, k, threadIdx.x, 32 * kWarps);
    asm volatile("bar.sync 1, %0;" ::"n"(32 * kWarps) : "memory");  // all warps but the producer's

    for (int round = 0; round < rounds; ++round) {
        const long long tile = ring_tile(blockIdx.x, gridDim.x, n, round, warp);
        float sums[kRows] = {};
        for (int chunk = 0; chunk < chunks; ++chunk) {
            const unsigned turn = round * chunks + chunk;
            uint4 packed[kBatch][kRows];
            wait(shared_address(&full[warp]), turn % 2);
#pragma unroll
            for (int j = 0; j < kRows; ++j) {
                const char* bytes = ring + ring_slot(warp) + j * ring_length(k, chunk);
#pragma unroll
                for (int b = 0; b < kBatch; ++b) {
                    packed[b][j] = *reinterpret_cast<const uint4*>(bytes + ring_offset(lane, b));
                }
            }
            __syncwarp();
            arrive(shared_address(&empty[warp]));

            const bool last = chunk + 1 == chunks;
            Half loaded[kRows];
#pragma unroll
            for (int j = 0; j < kRows; ++j) {
                const long long row = ring_row(last ? tile + kWarps : tile, j);
                loaded[j] = next[j];
                next[j] = load_scales(scales, row, n, k, last ? 0 : chunk + 1, lane);
            }
#pragma unroll
            for (int b = 0; b < kBatch; ++b) {
                const uint4* own = pieces + (chunk * kBatch + b) * 128 + lane;
#pragma unroll
                for (int j = 0; j < kRows; ++j) {
                    sums[j] += own_scale(loaded[j], lane, b) * dot32(unpack_lop3, packed[b][j], own, 32);
                }
            }
        }
#pragma unroll
        for (int j = 0; j < kRows; ++j) {
            const float sum = warp_sum(sums[j]);
            if (lane == 0 && tile < last_tile && ring_row(tile, j) < n) y[ring_row(tile, j)] = sum;
        }
    }
}
