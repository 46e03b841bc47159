// How fast can this GPU read? Every thread XORs pieces of 16 bytes, eight loads in flight, and does nothing else.
//
//   pieces (count), out: one word, XORed with all words of all pieces
constexpr int kInFlight = 8;

extern "C" __global__ void __launch_bounds__(512)
read_all(const uint4* __restrict__ pieces, unsigned* out, int count) {
    const long long threads = static_cast<long long>(gridDim.x) * blockDim.x;
    unsigned sum = 0;
    for (long long first = blockIdx.x * blockDim.x + threadIdx.x; first < count; first += kInFlight * threads) {
        uint4 found[kInFlight] = {};
#pragma unroll
        for (int i = 0; i < kInFlight; ++i) {
            if (first + i * threads < count) found[i] = __ldcs(pieces + first + i * threads);
        }
#pragma unroll
        for (int i = 0; i < kInFlight; ++i) sum ^= found[i].x ^ found[i].y ^ found[i].z ^ found[i].w;
    }
    sum = __reduce_xor_sync(0xffffffff, sum);
    if (threadIdx.x % 32 == 0) atomicXor(out, sum);
}
