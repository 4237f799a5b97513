// Philox4x32-10 words: word i of out is word i % 4 of the block with counter first + i / 4, under the seed as key.
// Grid: linear, one thread per block of four words.
// Bindings: 0 out (n) u32 write; 1 params { n, seed, first block, each 64-bit number as low and high word }.
// Constants: WG.
// Hardware: the four words are one store.

#include "dev.cuh"

struct Params {
    u32 n;
    u32 seed_low;
    u32 seed_high;
    u32 block_low;
    u32 block_high;
};

constexpr u32 WG = 256;

KERNEL(random, WG)(u32* __restrict__ out, Params params) {
    u32 block = linear_block() * WG + threadIdx.x;
    u32 first = 4 * block;
    if (first >= params.n) return;
    u32 low = params.block_low + block;
    uint4 words = {low, params.block_high + (low < block), 0, 0};
    u32 key0 = params.seed_low;
    u32 key1 = params.seed_high;
#pragma unroll
    for (u32 round = 0; round < 10; round++) {
        u32 high0 = multiply_high(words.x, 0xd2511f53u);
        u32 high1 = multiply_high(words.z, 0xcd9e8d57u);
        words = {high1 ^ words.y ^ key0, words.z * 0xcd9e8d57u, high0 ^ words.w ^ key1, words.x * 0xd2511f53u};
        key0 += 0x9e3779b9u;
        key1 += 0xbb67ae85u;
    }
    if (params.n - first >= 4) {
        ((uint4*)out)[block] = words;
    } else {
        out[first] = words.x;
        if (params.n - first > 1) out[first + 1] = words.y;
        if (params.n - first > 2) out[first + 2] = words.z;
    }
}
EXPORT(random)
