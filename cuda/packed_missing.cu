// Adds what missing codes come to, less what a product that took them for 3 added: sums[entry, column] += 64-bit integers.
// Grid: linear, one block per TILE words and depth rows.
// Bindings: 0 packed (rows, words) read; 1 weights (rows / 4, 2 row limbs) read; 2 sums (entries, columns, 2) u32 read and written; 3 params.
// Constants: TILE; LIMBS of a weight, 2 or 3.
// Hardware: for few missing codes, where reading the rows is most of the time. A warp takes the words of one row, which its
// threads read beside one another, all at once. Where one is missing each thread makes the number of one column, for all
// missing codes of these words; their threads add to neighbouring sums, by 64-bit additions in the L2 cache.

#include "dev.cuh"

struct Params {
    u32 rows;
    u32 words;
    u32 entries;
    u32 columns;
    u32 row_limbs;
    u32 word0;
    u32 word_count;
    u32 depth;
    u32 packed0;
    u32 weights0;
    u32 sums0;
    u32 shift;
};

constexpr u32 TILE = 128;
constexpr u32 LIMBS = 3;

constexpr u32 WARPS = 4;
// Words of a thread.
constexpr u32 OWN = TILE / WARP;

// Where the lowest bit of a word that is not 0 stands.
DEVICE u32 lowest(u32 word) { return popcount(~word & (word - 1)); }

// The bits of all threads of a warp.
DEVICE u32 warp_or(u32 bits) {
#pragma unroll
    for (u32 mask = WARP / 2; mask > 0; mask /= 2) bits |= shuffle_xor(bits, mask);
    return bits;
}

// The number that a row's limbs of a column make; `limbs`: the words of its four rows.
DEVICE i32 number(const u32* limbs, u32 row, u32 columns) {
    i32 sum = 0;
#pragma unroll
    for (u32 t = 0; t < LIMBS; t++) sum += (i32)(i8)(limbs[t * columns] >> (8 * (row % 4))) * (1 << (8 * t));
    return sum;
}

// Adds a warp's terms, of a column each, to the sums of the missing codes of its words from `word` on, of which `found` has
// those of the thread's own word.
DEVICE void add_terms(u64* sums, u32 found, u32 word, u32 column, u64 term, const Params& params) {
    u32 lane = threadIdx.x % WARP;
    for (u32 threads = warp_or((u32)(found != 0) << lane); threads != 0; threads &= threads - 1) {
        u32 from = lowest(threads);
        for (u32 mask = warp_or(lane == from ? found : 0); mask != 0; mask &= mask - 1) {
            u32 entry = 16 * (word + from) + lowest(mask) / 2;
            if (entry < params.entries && column < params.columns) add_atomic(sums + entry * params.columns + column, term);
        }
    }
}

KERNEL(packed_missing, WARPS * WARP)(const u32* __restrict__ packed, const u32* __restrict__ weights, u32* __restrict__ sums, Params params) {
    u32 tiles = div_ceil(params.word_count, TILE);
    u32 block = linear_block();
    // Neighbours read on in the same rows.
    u32 split = block / tiles;
    u32 first_word = (block - split * tiles) * TILE;
    // Not by the first row, which may wrap in the last blocks of a folded grid.
    if (split > (params.rows - 1) / params.depth) return;
    u32 first_row = split * params.depth;
    u32 end = first_row + min(params.rows - first_row, params.depth);
    u32 lane = threadIdx.x % WARP;
    for (u32 row = first_row + threadIdx.x / WARP; row < end; row += WARPS) {
        const u32* words = packed + params.packed0 + row * params.words + params.word0;
        u32 found[OWN];
        u32 some = 0;
#pragma unroll
        for (u32 i = 0; i < OWN; i++) {
            u32 word = first_word + i * WARP + lane;
            u32 bits = word < params.word_count ? words[word] : 0;
            found[i] = bits & bits >> 1 & 0x55555555u;
            some |= found[i];
        }
        if (!warp_any(some != 0)) continue;
        const u32* limbs = weights + params.weights0 + row / 4 * 2 * params.row_limbs;
        for (u32 first = 0; first < params.columns; first += WARP) {
            u32 column = first + lane;
            i32 term = 0;
            if (column < params.columns) {
                term = number(limbs + params.row_limbs + column, row, params.columns) - 3 * number(limbs + column, row, params.columns);
            }
#pragma unroll
            for (u32 i = 0; i < OWN; i++) {
                add_terms((u64*)(sums + params.sums0), found[i], first_word + i * WARP, column, (u64)(i64)term << params.shift, params);
            }
        }
    }
}
EXPORT(packed_missing)
