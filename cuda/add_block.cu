// Sums of blocks: sums[i, j] += block[i, j] for each block in order. A sum is an f64, or two f32: the nearest f32, and the remainder.
// Grid: linear, one block per WG elements.
// Bindings: 0 blocks (rows, cols) of f32 read; 1 sums, of two f32 or an f64 each, read and written; 2 params, starts in elements and sums.
// Constants: WG.
// Hardware: WG / 4 threads with four elements each, which are a row of threads apart, so that every access is of whole lines and eight
// loads are in flight at once (see scale_columns).

#include "dev.cuh"

constexpr u32 WG = 256;

KERNEL(add_block, WG / 4)(const float* __restrict__ blocks, double* __restrict__ sums, Params params) {
    u32 first = linear_block() * WG + threadIdx.x;
    u32 len = params.rows * params.cols;
    blocks += params.block0;
    sums += params.sums0;
    bool added[4];
    double all[4];
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        u32 item = first + i * (WG / 4);
        u32 row = item / params.cols;
        added[i] = item < len && (params.lower == 0 || item - row * params.cols <= params.row0 + row);
        if (added[i]) all[i] = sums[item];
    }
#pragma unroll 4
    for (u32 block = 0; block < params.blocks; block++) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            if (added[i]) all[i] += blocks[block * params.step + first + i * (WG / 4)];
        }
    }
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        if (added[i]) sums[first + i * (WG / 4)] = all[i];
    }
}
EXPORT(add_block)
