// Random words to rows of 2-bit codes, in place: code j of word w is digit j + 1 after the point of w / 2^32 to the base 3, 0 from `columns` on.
// Grid: linear, one thread per four words, which are of one row.
// Bindings: 0 packed (n / words, words) u32 read and write; 1 params { n, words, columns, packed0 }.
// Constants: WG.
// Hardware: the four words are one load and one store.

#include "dev.cuh"

constexpr u32 WG = 256;

DEVICE u32 codes(u32 rest, u32 count) {
    u32 packed = 0;
#pragma unroll
    for (u32 j = 0; j < 16; j++) {
        // The constants are 2^32 / 3 and 2^33 / 3, rounded up.
        u32 digit = (rest >= 0x55555556u) + (rest >= 0xaaaaaaabu);
        if (j < count) packed |= digit << (2 * j);
        rest *= 3;
    }
    return packed;
}

KERNEL(packed_uniform, WG)(u32* __restrict__ packed, Params params) {
    u32 first = 4 * (linear_block() * WG + threadIdx.x);
    if (first >= params.n) return;
    u32 column = 16 * (first % params.words);
    u32 count = params.columns - min(params.columns, column);
    uint4* four = (uint4*)(packed + params.packed0 + first);
    uint4 words = *four;
    words.x = codes(words.x, count);
    words.y = codes(words.y, count - min(count, 16u));
    words.z = codes(words.z, count - min(count, 2 * 16u));
    words.w = codes(words.w, count - min(count, 3 * 16u));
    *four = words;
}
EXPORT(packed_uniform)
