// Replaces codes of two bits by a table, and counts each new code of a row.
// Grid: linear, one block per row.
// Bindings: 0 raw (rows, row_bytes) bytes read; 1 packed (rows, words) write; 2 counts (rows, 4) write; 3 params, table: for code i at bit 2 i.
// Constants: WG.
// Hardware: a thread loads and stores 16 bytes at once, so that neighbours access neighbouring places. 1,600 threads of a multiprocessor
// then have 25 KiB in flight, which hides the latency of memory at full bandwidth. Rows that do not start at a multiple of 16 bytes are
// read as aligned words, which mostly come from the L1 cache, and shifted. A table is a polynomial in the two bits of 16 codes at once.

#include "dev.cuh"

constexpr u32 WG = 64;

// The lower bit of each code.
constexpr u32 LOWER = 0x55555555u;

struct Counts {
    u32 ones;
    u32 twos;
    u32 threes;
};

// Returns one bit of each of 16 new codes; `low` and `high` are the bits of the old ones. Bit 2 i of `table` is the bit of the new code for i.
DEVICE u32 plane(u32 low, u32 high, u32 table) {
    u32 a = 0 - (table & 1);
    u32 b = 0 - (table >> 2 & 1);
    u32 c = 0 - (table >> 4 & 1);
    u32 d = 0 - (table >> 6 & 1);
    return (a ^ (a ^ b) & low ^ (a ^ c) & high ^ (a ^ b ^ c ^ d) & low & high) & LOWER;
}

DEVICE u32 recoded(u32 codes, u32 table) {
    u32 low = codes & LOWER;
    u32 high = codes >> 1 & LOWER;
    return plane(low, high, table) | plane(low, high, table >> 1) << 1;
}

DEVICE void count(Counts& counts, u32 codes) {
    u32 lower = codes & LOWER;
    u32 upper = codes >> 1 & LOWER;
    counts.ones += popcount(lower & ~upper);
    counts.twos += popcount(upper & ~lower);
    counts.threes += popcount(upper & lower);
}

// Adds the counts of all threads; the first thread has the sums.
DEVICE Counts sum_block(Counts counts) {
    for (u32 mask = WARP / 2; mask > 0; mask /= 2) {
        counts.ones += shuffle_xor(counts.ones, mask);
        counts.twos += shuffle_xor(counts.twos, mask);
        counts.threes += shuffle_xor(counts.threes, mask);
    }
    SHARED(Counts, partial, WG / WARP);
    if (threadIdx.x % WARP == 0) partial[threadIdx.x / WARP] = counts;
    __syncthreads();
    counts = partial[0];
    for (u32 warp = 1; warp < WG / WARP; warp++) {
        counts.ones += partial[warp].ones;
        counts.twos += partial[warp].twos;
        counts.threes += partial[warp].threes;
    }
    return counts;
}

KERNEL(recode, WG)(const u32* __restrict__ raw, u32* __restrict__ packed, u32* __restrict__ counts, Params params) {
    u32 row = linear_block();
    if (row >= params.rows) return;
    u32 first = params.raw0 + row * params.row_bytes;
    u32* out = packed + params.packed0 + row * params.words;
    Counts own = {};
    // A row is a multiple of 64 codes.
    for (u32 unit = threadIdx.x; unit < params.words / 4; unit += WG) {
        u32 words[4] = {};
        u32 stored = params.row_bytes - min(params.row_bytes, 16 * unit);
        if (stored > 0) load_bytes(raw, first + 16 * unit, min(stored, 16u), words);
        u32 left = params.cols - min(params.cols, 64 * unit);
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            u32 cols = left > 16 * i ? left - 16 * i : 0;
            words[i] = recoded(words[i], params.table);
            if (cols < 16) words[i] &= ~(0xffffffffu << (2 * cols));
            count(own, words[i]);
        }
        ((uint4*)out)[unit] = {words[0], words[1], words[2], words[3]};
    }
    own = sum_block(own);
    // Counts are whole quads of words, so counts0 is a multiple of 4.
    u32 zeros = params.cols - own.ones - own.twos - own.threes;
    if (threadIdx.x == 0) ((uint4*)(counts + params.counts0))[row] = {zeros, own.ones, own.twos, own.threes};
}
EXPORT(recode)
