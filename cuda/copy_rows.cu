// Copies rows: out[i, j] = x[i, j], or x[indices[i], j] if this launch has that row of x.
// Grid: linear, one block per WG units of 16 bytes; a segment has `units`, the first of which holds its first element.
// Bindings: 0 x (rows, cols) read; 1 indices u32 read; 2 out, segments of `span` elements, `pitch` from each to the next, read, write; 3 count u32 of the indices past last_row, read, write; 4 params, starts in elements.
// Constants: WG; BYTES 1, 2 or 4; BY_INDEX 1 if indices name the rows of x.
// Hardware: a thread writes 16 bytes at once, next to its neighbours'. It reads 16 bytes with one load if they start at a multiple of 16
// bytes in x too, otherwise word by word. Elements are copied one by one if a row starts or ends within the unit.

#include "dev.cuh"

constexpr u32 WG = 256;
constexpr u32 BYTES = 4;
constexpr u32 BY_INDEX = 1;

// The number of elements of a unit.
constexpr u32 VALUES = 16 / BYTES;

// Returns the row of this launch's part of x that becomes row `row` of out, or at least x_rows if the part does not have that row.
DEVICE u32 source_of(const u32* indices, u32 row, const Params& params) {
    if constexpr (BY_INDEX == 1) return indices[params.index0 + row] - params.first_row;
    else return row;
}

DEVICE u32 load_element(const u32* array, u32 place) {
    if constexpr (BYTES == 1) return ((const u8*)array)[place];
    else if constexpr (BYTES == 2) return ((const u16*)array)[place];
    else return array[place];
}

DEVICE void store_element(u32* array, u32 place, u32 bits) {
    if constexpr (BYTES == 1) ((u8*)array)[place] = (u8)bits;
    else if constexpr (BYTES == 2) ((u16*)array)[place] = (u16)bits;
    else array[place] = bits;
}

KERNEL(copy_rows, WG)(const u32* __restrict__ x, const u32* __restrict__ indices, u32* __restrict__ out, u32* __restrict__ count, Params params) {
    u32 item = linear_block() * WG + threadIdx.x;
    u32 segment = item / params.units;
    if (segment >= params.segments) return;
    u32 start = params.out0 + segment * params.pitch;
    u32 end = start + params.span;
    u32 unit = start / VALUES + item - segment * params.units;
    u32 first = unit * VALUES;
    if (first >= end) return;
    u32 from = max(first, start);
    u32 to = min(first + VALUES, end);
    u32 row = segment + (from - start) / params.cols;
    u32 column = (from - start) % params.cols;
    u32 source = source_of(indices, row, params);
    u32 refused = column == 0 && source + params.first_row > params.last_row;
    u32 words[4] = {};
    u32 written = 0;
    if (from == first && params.cols - column >= VALUES) {
        if (source < params.x_rows) {
            load_bytes(x, BYTES * (params.x0 + source * params.cols + column), 16u, words);
            written = (1u << VALUES) - 1;
        }
    } else {
#pragma unroll
        for (u32 i = 0; i < VALUES; i++) {
            if (first + i < from || first + i >= to) continue;
            if (column == params.cols) {
                column = 0;
                row++;
                source = source_of(indices, row, params);
                refused += source + params.first_row > params.last_row;
            }
            if (source < params.x_rows) {
                u32 bits = load_element(x, params.x0 + source * params.cols + column);
                words[i * BYTES / 4] |= bits << (8 * (i * BYTES % 4));
                written |= 1u << i;
            }
            column++;
        }
    }
    if (refused > 0) atomic_add(count, refused);
    if (written == (1u << VALUES) - 1) {
        ((uint4*)out)[unit] = {words[0], words[1], words[2], words[3]};
        return;
    }
#pragma unroll
    for (u32 i = 0; i < VALUES; i++) {
        u32 bits = words[i * BYTES / 4] >> (8 * (i * BYTES % 4));
        if (written >> i & 1) store_element(out, first + i, bits);
    }
}
EXPORT(copy_rows)
