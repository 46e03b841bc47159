// y = W x for one token: INT4 weights times an activation of 16 bits, on the integer tensor cores.
//
// A block owns `tiles` tiles of `rows` rows of W. A unit is one tile times one group of 128 columns: rows * 64 bytes of
// `value_shuffle` words, row after row, then the rows' fp16 scales, then zeros up to a multiple of 16 bytes. A block's
// units follow one another, tile after tile, group after group: its whole share is one run of memory in the order in
// which it is read. To read in this order: gemv_mma_ring.cuh (how the weights come), gemv_mma_x.cuh (the activation),
// then here one unit, the sums, long rows, the kernel's body; gemv_mma.cu has its forms.
//
// No cell is added to by two threads: sums run in a fixed order, so every run gives the same bits.
#pragma once
#include "gemv_mma_x.cuh"

// ---- One unit: 32 rows times 128 columns ----

// c += a * b on the tensor cores: 16 rows by 32 columns of int8, times 8 columns of int8, in int32.
__device__ __forceinline__ void multiply_add(int (&c)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3,
                                             unsigned b0, unsigned b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Four words of two rows that are eight apart, times the group's activation. Lane 4 g + t holds rows g and g + 8 and
// the weights 32 t to 32 t + 31 of the group. Even columns of b hold high bytes, odd ones low bytes.
__device__ __forceinline__ int2 multiply_rows(uint4 upper, uint4 lower, const uint4 (&b)[2]) {
    const unsigned up[4] = {upper.x, upper.y, upper.z, upper.w}, down[4] = {lower.x, lower.y, lower.z, lower.w};
    const unsigned right[8] = {b[0].x, b[0].y, b[0].z, b[0].w, b[1].x, b[1].y, b[1].z, b[1].w};
    int c[4] = {0, 0, 0, 0};
#pragma unroll
    for (int word = 0; word < 4; ++word) {
        unsigned a0, a1, a2, a3;
        unpack_int8(up[word], a0, a2);
        unpack_int8(down[word], a1, a3);
        multiply_add(c, a0, a1, a2, a3, right[2 * word], right[2 * word + 1]);
    }
    return make_int2(256 * c[0] + c[1], 256 * c[2] + c[3]);  // exact: at most 128 * 128 * 32512 < 2^31
}

// Where in a unit this lane finds its four rows: 8 apart, the last one instead of those that the tile does not have.
struct LaneRows {
    int words[4], scales[4];

    __device__ explicit LaneRows(int rows) {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int row = min(lane / 4 + 8 * i, rows - 1);
            words[i] = row * (kGroup / 2) + lane % 4 * 16;
            scales[i] = rows * (kGroup / 2) + row * 2;
        }
    }
};

// sums[i] += row i of the unit times the group. Every lane arrives at `empty` as soon as its bytes are in registers.
__device__ __forceinline__ void multiply_unit(const unsigned char* unit, const LaneRows& rows,
                                              const unsigned char* activation, float activation_scale,
                                              unsigned long long* empty, float (&sums)[4]) {
    const int lane = threadIdx.x % 32;
    uint4 words[4];
    float scales[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) words[i] = *reinterpret_cast<const uint4*>(unit + rows.words[i]);
#pragma unroll
    for (int i = 0; i < 4; ++i) scales[i] = to_float(*reinterpret_cast<const Half*>(unit + rows.scales[i]));
    const unsigned char* start = activation + lane % 4 * 32 + lane / 4 % 2 * 16;
    const uint4 right[2] = {*reinterpret_cast<const uint4*>(start), *reinterpret_cast<const uint4*>(start + 128)};
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address(empty)) : "memory");
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int2 exact = multiply_rows(words[2 * i], words[2 * i + 1], right);
        sums[2 * i] += scales[2 * i] * activation_scale * exact.x;
        sums[2 * i + 1] += scales[2 * i + 1] * activation_scale * exact.y;
    }
}

// ---- All units of a block, and their sum ----

// Warp w takes units w, w + kWarps, …; so the warps share every row's sum, and each leaves its part in shared memory.
__device__ __forceinline__ void multiply_units(const Shape& shape, const Ring& plan, const Shared& shared) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, unit_bytes = shape.unit_bytes();
    const LaneRows rows(shape.rows);
    int slot = warp / kStageUnits, group = warp;
    unsigned phase = 0;
#pragma unroll 1
    for (int tile = 0; tile < shape.tiles; ++tile, group -= shape.groups) {
        float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll 1
        for (; group < shape.groups; group += kWarps) {
            if (slot >= plan.slots) slot -= plan.slots, phase ^= 1;
            wait_barrier(shared.full + slot, phase);
            const unsigned char* unit = shared.ring + (slot * kStageUnits + warp % kStageUnits) * unit_bytes;
            multiply_unit(unit, rows, shared.activation + group * kGroupBytes, shared.scales[group],
                          shared.empty + slot, sums);
            slot += kWarps / kStageUnits;
        }
        // The four lanes of a row hold equal sums: lane 4 g + t stores that of row g + 8 t.
        const int t = lane % 4;
        const float mine = t < 2 ? (t == 0 ? sums[0] : sums[1]) : (t == 2 ? sums[2] : sums[3]);
        shared.partial[(tile * kWarps + warp) * kUnitRows + lane / 4 + 8 * t] = mine;
    }
}

// Epilogues count rows as places: row r of tile t is place kUnitRows * t + r. -1: this place has no row of the matrix.
__device__ __forceinline__ int row_at(const Shape& shape, int place) {
    const int tile = place / kUnitRows, row = place % kUnitRows;
    const int global = shape.first_row() + tile * shape.rows + row;
    return row < shape.rows && global < shape.n ? global : -1;
}

// The sum of the row at a place over all warps, always in the same order.
__device__ __forceinline__ float sum_warps(const Shared& shared, int place) {
    const float* part = shared.partial + place / kUnitRows * kWarps * kUnitRows + place % kUnitRows;
    float sum = 0.0f;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) sum += part[warp * kUnitRows];
    return sum;
}

// ---- A long row, shared by the blocks of a cluster ----

// All threads of all its blocks that have not ended. What they wrote before can be read after.
__device__ __forceinline__ void sync_cluster() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The same, without a promise about memory.
__device__ __forceinline__ void meet_in_cluster() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

// The float at this place of the shared memory of another block of the cluster.
__device__ __forceinline__ float load_from_block(const float* place, int block) {
    unsigned there;
    float value;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address(place)), "r"(block));
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(there) : "memory");
    return value;
}

// Leaves the sums of all parts in `joined` of the first block, added in their order.
__device__ __forceinline__ void join_parts(const Shape& shape, const Shared& shared) {
#pragma unroll 1
    for (int place = threadIdx.x; place < shape.places(); place += kThreads)
        shared.own[place] = sum_warps(shared, place);
    sync_cluster();
#pragma unroll 1
    for (int place = threadIdx.x; shape.part() == 0 && place < shape.places(); place += kThreads) {
        float sum = 0.0f;
#pragma unroll 1
        for (int part = 0; part < shape.parts; ++part) sum += load_from_block(shared.own + place, part);
        shared.joined[place] = sum;  // the epilogue reads it in the same thread
    }
    meet_in_cluster();  // nobody ends while another still reads its memory
}

__device__ __forceinline__ float sum_row(const Shape& shape, const Shared& shared, int place) {
    return shape.parts == 1 ? sum_warps(shared, place) : shared.joined[place];
}

// ---- The kernel's body; Epilogue says what becomes of the sums ----

// kBatch: groups that a warp quantizes at a time.
template <bool kNorm, int kBatch, typename Input, typename Epilogue>
__device__ __forceinline__ void gemv(const unsigned char* weights, const Input* x, const float* norm, float eps,
                                     const Shape& shape, const Ring& plan, Epilogue epilogue) {
    extern __shared__ __align__(128) unsigned char memory[];
    const Shared shared(memory, shape, plan);
    if (threadIdx.x == kThreads) init_ring(shared, plan.slots);
    __syncthreads();
    let_next_kernel_start();  // its blocks come as soon as ours leave room, and wait themselves
    if (threadIdx.x >= kThreads) {
        if (threadIdx.x == kThreads) stream_weights(weights, shape, plan, shared);
        return;
    }
    if (kNorm && 32 * threadIdx.x < shape.groups * kGroup)  // the norm's weight waits in the L2: 32 numbers are a line
        asm volatile("prefetch.global.L2 [%0];" ::"l"(norm + 32 * threadIdx.x));
    wait_for_previous_kernel();
    epilogue.prepare(shape);
    if (!shape.units()) return;
    quantize_activation<kNorm, kBatch>(x + shape.part() * shape.groups * kGroup, norm, shape.groups, shared);
    // Warps whose groups are the same in every tile multiply what they quantized themselves: they need not meet.
    if (shape.tiles == 1 || shape.groups % kWarps == 0) __syncwarp();
    else sync_multipliers();
    multiply_units(shape, plan, shared);
    sync_multipliers();
    if (shape.parts > 1) join_parts(shape, shared);
    if (shape.part() == 0) epilogue.finish(shape, shared, inverse_rms<kNorm>(shared, shape.groups, eps));
}
