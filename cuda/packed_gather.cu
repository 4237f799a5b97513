// Packed rows in another order: row i of out is row order[i] of packed; its highest bit swaps codes 0 and 2, the next tells the missing.
// Grid: linear, one thread per word.
// Bindings: 0 packed (.., words) read; 1 order (rows) read; 2 out (rows, words) write; 3 params.
// Constants: WG.
// Hardware: memory bounds it; neighbours read and write neighbouring words but where a row begins.

#include "dev.cuh"

struct Params {
    u32 rows;
    u32 words;
    u32 entries;
    u32 packed0;
    u32 order0;
    u32 out0;
};

constexpr u32 WG = 256;

constexpr u32 SWAPPED = 0x80000000u;
constexpr u32 MISSING = 0x40000000u;

KERNEL(packed_gather, WG)(const u32* __restrict__ packed, const u32* __restrict__ order, u32* __restrict__ out, Params params) {
    u32 item = linear_block() * WG + threadIdx.x;
    u32 row = item / params.words;
    if (row >= params.rows) return;
    u32 place = order[params.order0 + row];
    u32 at = item - row * params.words;
    u32 word = packed[params.packed0 + (place & ~(SWAPPED | MISSING)) * params.words + at];
    if (place & MISSING) word &= word >> 1 & 0x55555555u;
    // What pads the row stays 0.
    if (place & SWAPPED && 16 * at < params.entries) {
        u32 used = min(16u, params.entries - 16 * at);
        word ^= (~word & 0x55555555u >> (2 * (16 - used))) << 1;
    }
    out[params.out0 + item] = word;
}
EXPORT(packed_gather)
