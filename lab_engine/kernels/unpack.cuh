// A word of eight INT4 weights -> four registers of two fp16, in four ways.
//
//     h0 = weights 0, 1   h1 = weights 2, 3   h2 = weights 4, 5   h3 = weights 6, 7   (the first in the low half)
//
// A nibble holds n = q + 8, so every way has to take the 8 away again. shift_mask and prmt read `linear` words
// (nibble i is weight i), lop3 reads `value_shuffle` words (nibbles 0 to 7 are weights 0 2 4 6 1 3 5 7).
//
// Each function is one block of PTX: lab_engine/ptx.py reads these very lines and runs them on NumPy arrays.
// What stands behind the last colon are constants: a two-fp16 instruction takes registers only. "=&r" keeps the
// compiler from placing an output in the register of an input that is still read.
#pragma once

// One weight at a time, as one would write it in C.
__device__ __forceinline__ void unpack_shift_mask(unsigned word,
        unsigned& h0, unsigned& h1, unsigned& h2, unsigned& h3) {
    asm(R"({
        .reg .b32 n0, n1, n2, n3, n4, n5, n6, n7;
        .reg .b32 q0, q1, q2, q3, q4, q5, q6, q7;
        .reg .b16 f0, f1, f2, f3, f4, f5, f6, f7;
        and.b32 n0, %4, 15;              // weight 0 is nibble 0: only the mask is needed
        sub.s32 q0, n0, 8;               // stored is q + 8
        cvt.rn.f16.s32 f0, q0;           // an integer becomes fp16: the slow step
        shr.u32 n1, %4, 4;               // weight 1 down to bit 0
        and.b32 n1, n1, 15;              // its neighbours away
        sub.s32 q1, n1, 8;               // stored is q + 8
        cvt.rn.f16.s32 f1, q1;           // integer to fp16
        mov.b32 %0, {f0, f1};            // two fp16 share a register
        shr.u32 n2, %4, 8;               // weight 2 down to bit 0
        and.b32 n2, n2, 15;              // its neighbours away
        sub.s32 q2, n2, 8;               // stored is q + 8
        cvt.rn.f16.s32 f2, q2;           // integer to fp16
        shr.u32 n3, %4, 12;              // weight 3 down to bit 0
        and.b32 n3, n3, 15;              // its neighbours away
        sub.s32 q3, n3, 8;               // stored is q + 8
        cvt.rn.f16.s32 f3, q3;           // integer to fp16
        mov.b32 %1, {f2, f3};            // two fp16 share a register
        shr.u32 n4, %4, 16;              // weight 4 down to bit 0
        and.b32 n4, n4, 15;              // its neighbours away
        sub.s32 q4, n4, 8;               // stored is q + 8
        cvt.rn.f16.s32 f4, q4;           // integer to fp16
        shr.u32 n5, %4, 20;              // weight 5 down to bit 0
        and.b32 n5, n5, 15;              // its neighbours away
        sub.s32 q5, n5, 8;               // stored is q + 8
        cvt.rn.f16.s32 f5, q5;           // integer to fp16
        mov.b32 %2, {f4, f5};            // two fp16 share a register
        shr.u32 n6, %4, 24;              // weight 6 down to bit 0
        and.b32 n6, n6, 15;              // its neighbours away
        sub.s32 q6, n6, 8;               // stored is q + 8
        cvt.rn.f16.s32 f6, q6;           // integer to fp16
        shr.u32 n7, %4, 28;              // weight 7 is the top nibble: the shift alone leaves it
        sub.s32 q7, n7, 8;               // stored is q + 8
        cvt.rn.f16.s32 f7, q7;           // integer to fp16
        mov.b32 %3, {f6, f7};            // two fp16 share a register
    })"
        : "=&r"(h0), "=&r"(h1), "=&r"(h2), "=&r"(h3)
        : "r"(word));
}

// Two weights at a time, without a conversion: fp16 has a step of 1 from 1024 to 2047, so 0x6400 | n is the number
// 1024 + n. Source of the idea: FasterTransformer, interleaved_numeric_conversion.h.
__device__ __forceinline__ void unpack_lop3(unsigned word,
        unsigned& h0, unsigned& h1, unsigned& h2, unsigned& h3) {
    asm(R"({
        .reg .b32 shifted;
        lop3.b32 %0, %4, 0x000f000f, 0x64006400, 0xea;       // (word & mask) | 0x6400: weights 0 and 1 are 1024 + n
        lop3.b32 %1, %4, 0x00f000f0, 0x64006400, 0xea;       // weights 2 and 3 sit 4 bits higher: 1024 + 16 n, no shift
        shr.u32 shifted, %4, 8;                              // one shift brings the other four weights into place
        lop3.b32 %2, shifted, 0x000f000f, 0x64006400, 0xea;  // weights 4 and 5: 1024 + n
        lop3.b32 %3, shifted, 0x00f000f0, 0x64006400, 0xea;  // weights 6 and 7: 1024 + 16 n
        sub.rn.f16x2 %0, %0, %5;                             // 1024 + n - 1032 = n - 8 = q, exact
        fma.rn.f16x2 %1, %1, %6, %7;                         // (1024 + 16 n) / 16 - 72 = n - 8 = q, rounded once
        sub.rn.f16x2 %2, %2, %5;                             // 1024 + n - 1032 = q
        fma.rn.f16x2 %3, %3, %6, %7;                         // (1024 + 16 n) / 16 - 72 = q
    })"
        : "=&r"(h0), "=&r"(h1), "=&r"(h2), "=&r"(h3)
        : "r"(word),
          "r"(0x64086408),   // 1032, 1032
          "r"(0x2c002c00),   // 1/16, 1/16
          "r"(0xd480d480));  // -72, -72
}

// Look-up: prmt picks four bytes out of eight by four selector nibbles. The low byte of fp16 -8 to 7 is always 0, so a
// table of the sixteen high bytes is all there is to know. prmt reads the low 16 bits of its selector, four weights.
__device__ __forceinline__ void unpack_prmt(unsigned word,
        unsigned& h0, unsigned& h1, unsigned& h2, unsigned& h3) {
    asm(R"({
        .reg .b32 select, choose, negative, positive, bytes;
        and.b32 select, %4, 0x77777777;                       // bit 3 of a selector nibble says "copy a sign": off
        shr.u32 choose, %4, 1;                                // bit 3 of n to where a selector says 4: the other table
        lop3.b32 choose, choose, 0x44444444, 0x32103210, 0xea;  // keep it, and let byte i stay byte i
        prmt.b32 negative, 0xc5c6c7c8, 0xbcc0c2c4, select;    // weights 0 to 3 if n < 8: high bytes of -8 to -1
        prmt.b32 positive, 0x42403c00, 0x47464544, select;    // weights 0 to 3 if n >= 8: high bytes of 0 to 7
        prmt.b32 bytes, negative, positive, choose;           // bit 3 of each n decides which of the two holds
        prmt.b32 %0, bytes, 0, 0x1404;                        // weights 0 and 1: a byte 0 below each high byte
        prmt.b32 %1, bytes, 0, 0x3424;                        // weights 2 and 3
        shr.u32 select, select, 16;                           // the selectors of weights 4 to 7
        shr.u32 choose, choose, 16;                           // the choices of weights 4 to 7
        prmt.b32 negative, 0xc5c6c7c8, 0xbcc0c2c4, select;    // weights 4 to 7 if n < 8
        prmt.b32 positive, 0x42403c00, 0x47464544, select;    // weights 4 to 7 if n >= 8
        prmt.b32 bytes, negative, positive, choose;           // which of the two holds
        prmt.b32 %2, bytes, 0, 0x1404;                        // weights 4 and 5
        prmt.b32 %3, bytes, 0, 0x3424;                        // weights 6 and 7
    })"
        : "=&r"(h0), "=&r"(h1), "=&r"(h2), "=&r"(h3)
        : "r"(word));
}

// The mistake: unpack_prmt without its first line. Where bit 3 is left in a selector nibble, prmt copies the sign of
// the byte instead of the byte: every weight with n >= 8 becomes 0.
__device__ __forceinline__ void unpack_prmt_bit3(unsigned word,
        unsigned& h0, unsigned& h1, unsigned& h2, unsigned& h3) {
    asm(R"({
        .reg .b32 select, choose, negative, positive, bytes;
        shr.u32 choose, %4, 1;                                // bit 3 of n to where a selector says 4: the other table
        lop3.b32 choose, choose, 0x44444444, 0x32103210, 0xea;  // keep it, and let byte i stay byte i
        prmt.b32 negative, 0xc5c6c7c8, 0xbcc0c2c4, %4;        // bit 3 is still in: n >= 8 copies a sign 1, byte 0xff
        prmt.b32 positive, 0x42403c00, 0x47464544, %4;        // n >= 8 copies a sign 0, byte 0x00
        prmt.b32 bytes, negative, positive, choose;           // the right table is chosen, and holds 0 where n >= 8
        prmt.b32 %0, bytes, 0, 0x1404;                        // weights 0 and 1
        prmt.b32 %1, bytes, 0, 0x3424;                        // weights 2 and 3
        shr.u32 select, %4, 16;                               // the selectors of weights 4 to 7
        shr.u32 choose, choose, 16;                           // the choices of weights 4 to 7
        prmt.b32 negative, 0xc5c6c7c8, 0xbcc0c2c4, select;    // weights 4 to 7: 0xff where n >= 8
        prmt.b32 positive, 0x42403c00, 0x47464544, select;    // weights 4 to 7: 0x00 where n >= 8
        prmt.b32 bytes, negative, positive, choose;           // the right table is chosen, and holds 0 where n >= 8
        prmt.b32 %2, bytes, 0, 0x1404;                        // weights 4 and 5
        prmt.b32 %3, bytes, 0, 0x3424;                        // weights 6 and 7
    })"
        : "=&r"(h0), "=&r"(h1), "=&r"(h2), "=&r"(h3)
        : "r"(word));
}
