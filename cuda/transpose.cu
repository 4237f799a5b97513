// The transpose: out[j, i] = x[i, j], of elements of four or eight bytes.
// Grid: tiles of 4 LINES, y along the m rows of x, x along its n columns; one block per tile.
// Bindings: 0 x (m, ldx) read; 1 out (n, ldo) written; 2 params.
// Constants: LINES rows that are read at once; WORDS of four bytes in an element.
// Hardware: a warp reads a row of the tile and writes a row of the transpose, so that every access is of whole sectors; four
// loads a thread are under way at once.

#include "dev.cuh"

constexpr u32 LINES = 8;
constexpr u32 WORDS = 1;
constexpr u32 TILE = 4 * LINES;
// One more than the length of a row, so that the elements of a column are in different banks.
constexpr u32 STRIDE = TILE + 1;

template <u32 COUNT> struct Words {
    typedef u32 Type;
};
template <> struct Words<2> {
    typedef u64 Type;
};
typedef Words<WORDS>::Type Element;

KERNEL(transpose, TILE * LINES)(const Element* __restrict__ x, Element* __restrict__ out, Params params) {
    SHARED(Element, tile, TILE * STRIDE);
    u32 first_row = blockIdx.y * TILE;
    u32 first_col = blockIdx.x * TILE;
    u32 along = threadIdx.x % TILE;
    u32 line = threadIdx.x / TILE;
    x += params.x0;
    out += params.out0;
    Element words[TILE / LINES];
#pragma unroll
    for (u32 part = 0; part < TILE / LINES; part++) {
        u32 row = first_row + line + part * LINES;
        u32 col = first_col + along;
        words[part] = row < params.m && col < params.n ? x[row * params.ldx + col] : 0;
    }
#pragma unroll
    for (u32 part = 0; part < TILE / LINES; part++) tile[(line + part * LINES) * STRIDE + along] = words[part];
    __syncthreads();
#pragma unroll
    for (u32 part = 0; part < TILE / LINES; part++) {
        u32 row = first_row + along;
        u32 col = first_col + line + part * LINES;
        if (row < params.m && col < params.n) out[col * params.ldo + row] = tile[along * STRIDE + line + part * LINES];
    }
}
EXPORT(transpose)
