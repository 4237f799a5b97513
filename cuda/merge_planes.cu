// A plane of low bits and one of high bits to 2-bit codes, the first in the lowest bits; rows of codes end with zeros.
// Grid: linear, one block per WG words of the window of codes.
// Bindings: 0 low (rows, planes_stride) read; 1 high read; 2 codes (rows, codes_stride) read, write; 3 params.
// Constants: WG.
// Hardware: a thread writes 8 bytes of the two words of each plane that they are in.

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

// Bytes of a thread, and codes of a byte.
constexpr u32 BYTES = 8;
constexpr u32 PER = 4;

// The lowest 16 bits as bits 0, 2, 4, .. of a word.
DEVICE u32 apart(u32 word) {
    word &= 0xffff;
    word = (word | word << 8) & 0x00ff00ff;
    word = (word | word << 4) & 0x0f0f0f0f;
    word = (word | word << 2) & 0x33333333;
    return (word | word << 1) & 0x55555555;
}

// `count` bits of a plane from bit `bit` of byte `at` on, as bits 0, 2, 4, ..
DEVICE u64 load_plane(const u32* plane, u32 at, u32 bit, u32 count) {
    u32 words[2];
    load_bytes(plane, at, div_ceil(bit + count, 8), words);
    u32 bits = (u32)((join(words[0], words[1]) >> bit) & low_bits(count));
    return join(apart(bits), apart(bits >> 16));
}

KERNEL(merge_planes, 4 * WG / BYTES)(const u32* __restrict__ low, const u32* __restrict__ high, u32* __restrict__ codes, Params params) {
    u32 end = params.codes0 + params.rows * params.codes_stride;
    u32 unit = linear_block() * (4 * WG / BYTES) + threadIdx.x;
    if (unit >= div_ceil(end, BYTES) || (unit + 1) * BYTES <= params.codes0) return;
    u32 first = unit * BYTES;
    u32 from = max(first, params.codes0);
    u32 to = min(first + BYTES, end);
    u32 row = (from - params.codes0) / params.codes_stride;
    u32 column = from - params.codes0 - row * params.codes_stride;
    u64 merged = 0;
    // Once, but where a row ends within the bytes of the thread.
    for (u32 at = from; at < to;) {
        u32 bytes = min(to - at, params.codes_stride - column);
        if (column < div_ceil(params.cols, PER)) {
            u32 count = min(params.cols - column * PER, bytes * PER);
            u32 byte = params.planes0 + row * params.planes_stride + column / 2;
            u32 bit = 4 * (column & 1);
            u64 run = load_plane(low, byte, bit, count) | load_plane(high, byte, bit, count) << 1;
            merged |= run << (8 * (at - first));
        }
        at += bytes;
        column = 0;
        row++;
    }
    store_bytes<BYTES>(codes, first, from, to, merged);
}
EXPORT(merge_planes)
