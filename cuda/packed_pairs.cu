// Adds each row's products of two entries whose codes are not 0: sums[entry, column] += 64-bit integers.
// Grid: linear, one thread per word of a row.
// Bindings: 0 packed (rows, words) read; 1 table (rows, 4) of two codes 1, a 1 and a missing code, two missing codes, and a shift read; 2 sums (entries, columns, 2) u32 read and written; 3 params.
// Constants: WG.
// Hardware: this kernel is for rows with few such codes. Reading the rows takes most of the time, and atomic operations rarely meet at one
// sum.

#include "dev.cuh"

constexpr u32 WG = 256;

// Returns the position of the lowest set bit of a word, which is not 0.
DEVICE u32 lowest(u32 word) { return popcount(~word & (word - 1)); }

// Returns the product of two codes, neither of which is 0, from the row's terms.
DEVICE u32 product(u32 a, u32 b, const u32* terms) {
    if (a == 3 && b == 3) return terms[2];
    if (a == 3 || b == 3) return min(a, b) * terms[1];
    return a * b * terms[0];
}

KERNEL(packed_pairs, WG)(const u32* __restrict__ packed, const u32* __restrict__ table, u32* __restrict__ sums, Params params) {
    u32 item = linear_block() * WG + threadIdx.x;
    u32 row = item / params.word_count;
    if (row >= params.rows) return;
    u32 at = item - row * params.word_count;
    const u32* words = packed + params.packed0 + row * params.words;
    const u32* terms = table + params.table0 + 4 * row;
    for (u32 word = words[params.word0 + at]; word != 0;) {
        u32 place = lowest(word) & ~1u;
        u32 code = word >> place & 3;
        word &= ~(3u << place);
        u64* sums_of = (u64*)(sums + params.sums0) + (16 * at + place / 2) * params.columns;
        for (u32 first = 0; first < params.columns; first += 16) {
            for (u32 other = words[params.column_word + first / 16]; other != 0;) {
                u32 column = lowest(other) & ~1u;
                u64 value = product(code, other >> column & 3, terms);
                other &= ~(3u << column);
                add_atomic(sums_of + first + column / 2, value << terms[3]);
            }
        }
    }
}
EXPORT(packed_pairs)
