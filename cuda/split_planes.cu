// 2-bit codes to a plane of their low bits and one of their high bits, the first in the lowest bits; rows of planes end with zeros.
// Grid: linear, one block per WG words of the window of a plane.
// Bindings: 0 codes (rows, codes_stride) read; 1 low (rows, planes_stride) read, write; 2 high read, write; 3 params.
// Constants: WG.
// Hardware: a thread reads 16 bytes, at once where aligned, and writes 8 of each plane.

#include "dev.cuh"

struct Params {
    u32 rows;
    u32 cols;
    u32 codes_stride;
    u32 planes_stride;
    u32 codes0;
    u32 planes0;
};

constexpr u32 WG = 256;

// Bytes of a thread in a plane, and codes of a byte there.
constexpr u32 BYTES = 8;
constexpr u32 PER = 8;

// Bits 0, 2, 4, .. of a word.
DEVICE u32 evens(u32 word) {
    word &= 0x55555555;
    word = (word | word >> 1) & 0x33333333;
    word = (word | word >> 2) & 0x0f0f0f0f;
    word = (word | word >> 4) & 0x00ff00ff;
    return (word | word >> 8) & 0xffff;
}

KERNEL(split_planes, 4 * WG / BYTES)(const u32* __restrict__ codes, u32* __restrict__ low, u32* __restrict__ high, Params params) {
    u32 end = params.planes0 + params.rows * params.planes_stride;
    u32 unit = linear_block() * (4 * WG / BYTES) + threadIdx.x;
    if (unit >= div_ceil(end, BYTES) || (unit + 1) * BYTES <= params.planes0) return;
    u32 first = unit * BYTES;
    u32 from = max(first, params.planes0);
    u32 to = min(first + BYTES, end);
    u32 row = (from - params.planes0) / params.planes_stride;
    u32 column = from - params.planes0 - row * params.planes_stride;
    u64 lows = 0;
    u64 highs = 0;
    // Once, but where a row ends within the bytes of the thread.
    for (u32 at = from; at < to;) {
        u32 bytes = min(to - at, params.planes_stride - column);
        if (column < div_ceil(params.cols, PER)) {
            u32 count = min(params.cols - column * PER, bytes * PER);
            u32 words[4];
            load_bytes(codes, params.codes0 + row * params.codes_stride + 2 * column, div_ceil(count, 4), words);
            u64 low_run = 0;
            u64 high_run = 0;
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                low_run |= (u64)evens(words[i]) << (16 * i);
                high_run |= (u64)evens(words[i] >> 1) << (16 * i);
            }
            lows |= (low_run & low_bits(count)) << (8 * (at - first));
            highs |= (high_run & low_bits(count)) << (8 * (at - first));
        }
        at += bytes;
        column = 0;
        row++;
    }
    store_bytes<BYTES>(low, first, from, to, lows);
    store_bytes<BYTES>(high, first, from, to, highs);
}
EXPORT(split_planes)
