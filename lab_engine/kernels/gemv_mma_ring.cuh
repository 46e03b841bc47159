// What the tensor-core GEMV has before its first product: the constants, how rows are shared out, where things lie in
// shared memory, the edges between kernels, and the ring through which the weights come.
#pragma once
#include "nibbles.cuh"

constexpr int kWarps = 16;               // that multiply; one more brings the weights
constexpr int kThreads = 32 * kWarps;    // that multiply
constexpr int kGroup = 128;              // weights with one scale
constexpr int kUnitRows = 32;            // at most: two tensor-core tiles of 16 rows
constexpr int kGroupBytes = 2 * kGroup;  // of the activation in shared memory: two bytes a number
constexpr int kStageUnits = 8;           // units that one bulk copy brings; divides kWarps
constexpr int kParts = 2;                // of a long row: blocks of a cluster
constexpr float kLargest = 32512.0f;     // 127 * 256: the largest number that two signed bytes hold symmetrically
constexpr float kSmallest = 1e-33f;      // a group with no larger number counts as zeros: 32512 / |x| must be finite

using Half = unsigned short;  // the bits of an fp16: NVRTC alone has no cuda_fp16.h

__device__ __forceinline__ float to_float(Half bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

// groups: of one part. A matrix with long rows is cut into `parts` parts of its columns, one a block of a cluster.
struct Shape {
    int n, groups, rows, tiles, parts;

    __device__ int unit_bytes() const { return (rows * (kGroup / 2 + 2) + 15) / 16 * 16; }
    __device__ int part() const { return parts == 1 ? 0 : blockIdx.x % parts; }
    __device__ int first_row() const { return (parts == 1 ? blockIdx.x : blockIdx.x / parts) * tiles * rows; }
    __device__ int units() const { return first_row() < n ? tiles * groups : 0; }
    __device__ int places() const { return tiles * kUnitRows; }
    __device__ int stages() const { return (units() + kStageUnits - 1) / kStageUnits; }
};

// slots: stages that the ring holds; window: copies in flight at a time, at most slots - kWarps / kStageUnits. A warp
// goes on by kWarps units, and copies land in any order: with more in flight it could take the bytes of the last round.
struct Ring {
    int slots, window;
};

// Shared memory of a block, in this order. Everything but the ring is small.
struct Shared {
    unsigned char* ring;        // slots * kStageUnits units
    unsigned char* activation;  // groups * kGroupBytes
    float* scales;              // groups: of the activation
    float* partial;             // tiles * kWarps * kUnitRows sums
    float* squares;             // kWarps: sums of x * x
    float *own, *joined;        // tiles * kUnitRows each, in the place of the activation once it is multiplied
    unsigned long long *full, *empty;  // slots barriers each

    __device__ Shared(unsigned char* start, const Shape& shape, const Ring& plan) {
        ring = start;
        activation = ring + plan.slots * kStageUnits * shape.unit_bytes();
        full = reinterpret_cast<unsigned long long*>(activation + shape.groups * kGroupBytes);
        empty = full + plan.slots;
        partial = reinterpret_cast<float*>(empty + plan.slots);
        scales = partial + shape.tiles * kWarps * kUnitRows;
        squares = scales + shape.groups;
        own = reinterpret_cast<float*>(activation);
        joined = own + shape.places();
    }
};

__device__ __forceinline__ unsigned address(const void* shared) {
    return static_cast<unsigned>(__cvta_generic_to_shared(shared));
}

// ---- Edges between kernels ----

// Before this returns, nothing may be read that the kernel before in the stream writes.
__device__ __forceinline__ void wait_for_previous_kernel() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

__device__ __forceinline__ void let_next_kernel_start() {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

__device__ __forceinline__ void sync_multipliers() { asm volatile("bar.sync 1, %0;" ::"n"(kThreads) : "memory"); }

// ---- The ring: weights flow into shared memory before they are needed ----

__device__ __forceinline__ void wait_barrier(unsigned long long* barrier, unsigned phase) {
    asm volatile(
        "{\n.reg .pred done;\n"
        "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n}" ::"r"(address(barrier)), "r"(phase) : "memory");
}

__device__ __forceinline__ void init_ring(const Shared& shared, int slots) {
#pragma unroll 1
    for (int slot = 0; slot < slots; ++slot) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address(shared.full + slot)));
        const unsigned empty = address(shared.empty + slot);
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(empty), "n"(32 * kStageUnits));
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// One thread brings all weights of the block. It waits for nothing but room: weights never change, so they may flow
// while the kernel before is still running. No more than `window` copies are in flight: a longer queue would hold up
// every other access of the SM behind it.
__device__ __forceinline__ void stream_weights(const unsigned char* weights, const Shape& shape, const Ring& plan,
                                               const Shared& shared) {
    const int unit_bytes = shape.unit_bytes(), stages = shape.stages(), stage_bytes = kStageUnits * unit_bytes;
    const long long share = static_cast<long long>(shape.tiles) * shape.groups * unit_bytes;
    const unsigned char* source = weights + blockIdx.x * share;
    int left = shape.units() * unit_bytes, slot = 0, landed = 0;
    unsigned empty_phase = 1, landed_phase = 0;  // a fresh barrier counts as having passed phase 1
#pragma unroll 1
    for (int stage = 0; stage < stages; ++stage) {
        wait_barrier(shared.empty + slot, empty_phase);
        if (stage >= plan.window) {
            wait_barrier(shared.full + landed, landed_phase);
            if (++landed == plan.slots) landed = 0, landed_phase ^= 1;
        }
        const unsigned bytes = min(left, stage_bytes), full = address(shared.full + slot);
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(full), "r"(bytes) : "memory");
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                address(shared.ring + slot * stage_bytes)),
            "l"(source + static_cast<long long>(stage) * stage_bytes), "r"(bytes), "r"(full)
            : "memory");
        left -= bytes;
        if (++slot == plan.slots) slot = 0, empty_phase ^= 1;
    }
}
