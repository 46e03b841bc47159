// A word of eight INT4 weights -> two registers of four int8, each 16 * q, without an addition or a conversion.
//
//     low = weights 0 4 1 5   high = weights 2 6 3 7   (the first in the lowest byte; the word is `value_shuffle`)
//
// A nibble holds n = q + 8. n ^ 8 is q as a two's-complement nibble; in the upper half of a byte, with zeros below,
// it is the signed byte 16 * q. Both INT8 kernels multiply by these and take the 16 away once a group, in its scale.
// Like unpack.cuh this is one block of PTX, which lab_engine/ptx.py reads and runs.
#pragma once

__device__ __forceinline__ void unpack_int8(unsigned word, unsigned& low, unsigned& high) {
    asm(R"({
        .reg .b32 shifted;
        shl.b32 shifted, %2, 4;                                // even nibbles, weights 0 4 1 5, into upper halves
        lop3.b32 %0, shifted, 0x80808080, 0xf0f0f0f0, 0x28;    // (a ^ b) & c: take the 8 away, clear the other nibble
        lop3.b32 %1, %2, 0x80808080, 0xf0f0f0f0, 0x28;         // odd nibbles, weights 2 6 3 7, are in place already
    })"
        : "=&r"(low), "=&r"(high)
        : "r"(word));
}
