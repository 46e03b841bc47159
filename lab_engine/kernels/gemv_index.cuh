// Which lane reads which bytes: the addresses of every GEMV kernel that reads the row-major matrix.
//
// Row r of an (n, k) INT4 matrix is the k / 2 bytes from r * k / 2 of the packed tensor; k is a multiple of 128, so a
// row is a multiple of 64 bytes. Its scales are the k / 128 fp16 from r * k / 128; 64 bytes of a row share one.
//
// Kernels call these functions, and lab_engine/index_text.py evaluates the same text on Python's integers: what a
// picture shows is what a kernel reads. So each is one line and one expression of + - * / % < <= > >= and calls of
// functions above it, on whole numbers that are never negative (C rounds those down, as Python's // does).
#pragma once

#define INDEX __host__ __device__ constexpr long long

// Of every row: its bytes; and of a byte offset inside a row: the first weight there, and the group with its scale.
INDEX row_bytes(long long k) { return k / 2; }
INDEX weight_of(long long offset) { return offset * 2; }
INDEX group_of(long long offset) { return offset / 64; }

// naive: a thread a row, one word of 4 bytes a load. Neighbouring lanes read addresses a whole row apart.
INDEX naive_warps() { return 4; }
INDEX naive_rows() { return 1; }
INDEX naive_width() { return 4; }
INDEX naive_row(long long block, long long warp, long long lane, long long j) { return (block * naive_warps() + warp) * 32 + lane + j; }
INDEX naive_iterations(long long k) { return row_bytes(k) / naive_width(); }
INDEX naive_offset(long long lane, long long i) { return i * naive_width() + lane * 0; }
INDEX naive_active(long long k, long long lane, long long i) { return naive_offset(lane, i) < row_bytes(k); }
INDEX naive_byte(long long row, long long k, long long lane, long long i) { return row * row_bytes(k) + naive_offset(lane, i); }

// naive16: the same with 16 bytes a load, for the picture: half a sector is used instead of an eighth.
INDEX naive16_warps() { return 4; }
INDEX naive16_rows() { return 1; }
INDEX naive16_width() { return 16; }
INDEX naive16_row(long long block, long long warp, long long lane, long long j) { return (block * naive16_warps() + warp) * 32 + lane + j; }
INDEX naive16_iterations(long long k) { return row_bytes(k) / naive16_width(); }
INDEX naive16_offset(long long lane, long long i) { return i * naive16_width() + lane * 0; }
INDEX naive16_active(long long k, long long lane, long long i) { return naive16_offset(lane, i) < row_bytes(k); }
INDEX naive16_byte(long long row, long long k, long long lane, long long i) { return row * row_bytes(k) + naive16_offset(lane, i); }

// coalesced (also lop3 and prmt): a warp a row, 16 bytes a lane, so 512 bytes an iteration. Lanes past the end idle.
INDEX coalesced_warps() { return 8; }
INDEX coalesced_rows() { return 1; }
INDEX coalesced_width() { return 16; }
INDEX coalesced_row(long long block, long long warp, long long lane, long long j) { return block * coalesced_warps() + warp + lane * 0 + j; }
INDEX coalesced_iterations(long long k) { return (row_bytes(k) + 511) / 512; }
INDEX coalesced_offset(long long lane, long long i) { return i * 512 + lane * coalesced_width(); }
INDEX coalesced_active(long long k, long long lane, long long i) { return coalesced_offset(lane, i) < row_bytes(k); }
INDEX coalesced_byte(long long row, long long k, long long lane, long long i) { return row * row_bytes(k) + coalesced_offset(lane, i); }

// rows: a warp two neighbouring rows; in each the lanes read as in coalesced. An SM gets rows_blocks() blocks, and each
// goes on with the rows of the block that many places on, until there are none.
INDEX rows_blocks() { return 3; }
INDEX rows_warps() { return 8; }
INDEX rows_rows() { return 2; }
INDEX rows_width() { return 16; }
INDEX rows_row(long long block, long long warp, long long lane, long long j) { return (block * rows_warps() + warp) * rows_rows() + lane * 0 + j; }
INDEX rows_iterations(long long k) { return (row_bytes(k) + 511) / 512; }
INDEX rows_offset(long long lane, long long i) { return i * 512 + lane * rows_width(); }
INDEX rows_active(long long k, long long lane, long long i) { return rows_offset(lane, i) < row_bytes(k); }
INDEX rows_byte(long long row, long long k, long long lane, long long i) { return row * row_bytes(k) + rows_offset(lane, i); }

// x in shared memory (rows, ring), in pieces of 16 bytes, 8 fp16: a lane needs pieces 4 * lane to 4 * lane + 3 of each
// 128. Its j-th piece lies in place 32 * j + lane, so that the 32 lanes of a warp read neighbouring pieces. There is room
// for whole batches of four iterations.
INDEX x_place(long long piece) { return piece / 128 * 128 + piece % 4 * 32 + piece % 128 / 4; }
INDEX x_bytes(long long k) { return (k + 4095) / 4096 * 8192; }

// ring: a block owns neighbouring tiles of ring_rows() rows, from ring_first_tile(block) to that of the next block, and
// deals them to its warps, one tile a warp a round. A stage is what a warp takes at once: a tile, one bulk copy; where a
// row is longer than ring_chunk() bytes it is a chunk of each row, and a copy brings that of ring_copy_rows() rows. In
// the ring, every warp has a slot of its own, where the rows of a stage lie one behind the other, ring_length() apart.
INDEX ring_warps() { return 8; }
INDEX ring_rows() { return 4; }
INDEX ring_width() { return 16; }
INDEX ring_chunk() { return 2048; }
INDEX ring_slot(long long warp) { return warp * ring_rows() * ring_chunk(); }
INDEX ring_tiles(long long n) { return (n + ring_rows() - 1) / ring_rows(); }
INDEX ring_first_tile(long long block, long long blocks, long long n) { return block * ring_tiles(n) / blocks; }
INDEX ring_rounds(long long block, long long blocks, long long n) { return (ring_first_tile(block + 1, blocks, n) - ring_first_tile(block, blocks, n) + ring_warps() - 1) / ring_warps(); }
INDEX ring_tile(long long block, long long blocks, long long n, long long round, long long warp) { return ring_first_tile(block, blocks, n) + round * ring_warps() + warp; }
INDEX ring_row(long long tile, long long j) { return tile * ring_rows() + j; }
INDEX ring_chunks(long long k) { return (row_bytes(k) + ring_chunk() - 1) / ring_chunk(); }
INDEX ring_last_bytes(long long k) { return row_bytes(k) - (ring_chunks(k) - 1) * ring_chunk(); }
INDEX ring_length(long long k, long long chunk) { return ring_chunk() - (chunk + 1 == ring_chunks(k)) * (ring_chunk() - ring_last_bytes(k)); }
INDEX ring_byte(long long row, long long k, long long chunk) { return row * row_bytes(k) + chunk * ring_chunk(); }
INDEX ring_copy_rows(long long k) { return 1 + (ring_chunks(k) == 1) * (ring_rows() - 1); }
INDEX ring_offset(long long lane, long long i) { return i * 512 + lane * ring_width(); }

#undef INDEX
