// Sums of blocks: sums[i, j] += block[i, j]. A sum is the words of an f64, or the f32 next to it and what that leaves.
// Grid: linear, one block per WG elements.
// Bindings: 0 block (rows, cols) f32 read; 1 the first and 2 the second numbers of the sums, read and written; 3 params.
// Constants: WG.
// Hardware: WG / 4 threads with four elements each, a row of threads apart, so that every access is of a whole line and twelve
// loads are under way at once (see scale_columns).

#include "dev.cuh"

struct Params {
    u32 rows;
    u32 cols;
    u32 block0;
    u32 sums0;
    u32 lower;
    u32 row0;
    u32 zero;
};

constexpr u32 WG = 256;

KERNEL(add_block, WG / 4)(const float* __restrict__ block, u32* __restrict__ low, u32* __restrict__ high, Params params) {
    u32 first = linear_block() * WG + threadIdx.x;
    u32 len = params.rows * params.cols;
    block += params.block0;
    low += params.sums0;
    high += params.sums0;
    bool added[4];
    double sums[4];
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        u32 item = first + i * (WG / 4);
        u32 row = item / params.cols;
        added[i] = item < len && (params.lower == 0 || item - row * params.cols <= params.row0 + row);
        if (added[i]) sums[i] = bits_double(join(low[item], high[item])) + block[item];
    }
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        if (!added[i]) continue;
        u32 item = first + i * (WG / 4);
        u64 bits = *(const u64*)&sums[i];
        low[item] = (u32)bits;
        high[item] = high_word(bits);
    }
}
EXPORT(add_block)
