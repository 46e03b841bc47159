// y = W x for one token: INT4 weights times an activation of 16 bits, on the integer tensor cores.
//
// A block owns `tiles` tiles of `rows` rows of W. A unit is one tile times one group of 128 columns: rows * 64 bytes of
// `value_shuffle` words, row after row, then the rows' fp16 scales, then zeros up to a multiple of 16 bytes. A block's
// units follow one another, tile after tile, group after group: its whole share is one run of memory in the order in
// which it is read. In this file: the activation, the ring, one unit, the sums, long rows, the kernel's body.
//
// No cell is added to by two threads: sums run in a fixed order, so every run gives the same bits.
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

// ---- The activation: from floats to two signed bytes a number ----

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
