// Replaces packed codes by limbs from a table: byte r of out[i, limb] is the limb for code 4 i + r of a column.
// Grid: linear, one thread per four rows of a column.
// Bindings: 0 packed (rows, words) read; 1 table (rows, SETS LIMBS) of four limbs read; 2 out (rows / 4, SETS row limbs) write; 3 params.
// Constants: WG; SETS of numbers and LIMBS of each, SETS LIMBS words of the table.
// Hardware: two bits become SETS LIMBS bytes, so that writing takes most of the time. Neighbours write neighbouring words, and read one
// word of each row and one table, which the L1 cache gives to all of them.

#include "dev.cuh"

constexpr u32 WG = 256;
constexpr u32 SETS = 1;
constexpr u32 LIMBS = 3;

constexpr u32 ENTRIES = SETS * LIMBS;

KERNEL(packed_limbs, WG)(const u32* __restrict__ packed, const u32* __restrict__ table, u32* __restrict__ out, Params params) {
    u32 item = linear_block() * WG + threadIdx.x;
    u32 four = item / params.columns;
    u32 first = 4 * four;
    if (first >= params.rows) return;
    u32 column = item - four * params.columns;
    u32 words[ENTRIES] = {};
#pragma unroll
    for (u32 r = 0; r < 4; r++) {
        u32 row = first + r;
        if (row >= params.rows) break;
        u32 word = packed[params.packed0 + row * params.words + params.word0 + column / 16];
        u32 code = word >> (2 * (column % 16)) & 3;
        const u32* limbs = table + params.table0 + row * ENTRIES;
#pragma unroll
        for (u32 t = 0; t < ENTRIES; t++) words[t] |= (limbs[t] >> (8 * code) & 0xff) << (8 * r);
    }
#pragma unroll
    for (u32 set = 0; set < SETS; set++) {
        u32* to = out + params.out0 + (four * SETS + set) * params.row_limbs;
#pragma unroll
        for (u32 t = 0; t < LIMBS; t++) to[t * params.columns + column] = words[set * LIMBS + t];
        // Clears the padding of a row of limbs to whole tiles.
        for (u32 pad = LIMBS * params.columns + column; pad < params.row_limbs; pad += params.columns) to[pad] = 0;
    }
}
EXPORT(packed_limbs)
