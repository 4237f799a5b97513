// Packed rows in another order: row i of out, which may be wider, is row order[i] of packed. The low 24 bits of order[i] are the index, and the next eight are the codes that replace 0 to 3.
// Grid: linear, one thread per word.
// Bindings: 0 packed (.., words) read; 1 order (rows) read; 2 out (rows, stride) write; 3 params.
// Constants: WG.
// Hardware: memory bounds it; neighbours read and write neighbouring words, except where a row begins.

#include "dev.cuh"

constexpr u32 WG = 256;

constexpr u32 ROWS = 0x01000000u;
constexpr u32 EACH = 0x55555555u;

KERNEL(packed_gather, WG)(const u32* __restrict__ packed, const u32* __restrict__ order, u32* __restrict__ out, Params params) {
    u32 item = linear_block() * WG + threadIdx.x;
    u32 row = item / params.words;
    if (row >= params.rows) return;
    u32 place = order[params.order0 + row];
    u32 at = item - row * params.words;
    u32 word = packed[params.packed0 + place % ROWS * params.words + at];
    // Each bit of the new code is a polynomial of the two bits of the old one.
    u32 zero = place >> 24 & 3;
    u32 one = place >> 26 & 3;
    u32 two = place >> 28 & 3;
    u32 three = place >> 30;
    u32 lows = (word & EACH) * 3;
    u32 highs = (word >> 1 & EACH) * 3;
    u32 codes = ((zero ^ one) * EACH & lows) ^ ((zero ^ two) * EACH & highs);
    codes ^= (zero ^ one ^ two ^ three) * EACH & lows & highs;
    // The padding of the row stays 0.
    if (16 * at < params.entries) {
        u32 used = min(16u, params.entries - 16 * at);
        codes ^= zero * (EACH >> (2 * (16 - used)));
    }
    out[params.out0 + row * params.stride + at] = codes;
}
EXPORT(packed_gather)
