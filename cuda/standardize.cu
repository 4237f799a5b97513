// Rows centred and scaled: out[i, j] = (x[i, j] - shift) scale, or fill if x is NaN, or if it is negative and negative is missing. The table has each row's shift, scale and fill.
// Grid: linear, one block per WG elements.
// Bindings: 0 x (rows, cols) read; 1 table (rows, 3) of shift, scale, fill, f32 read; 2 out f32 write; 3 params.
// Constants: WG; NARROW x is of the type in params, else f32.
// Hardware: WG / 4 threads with four elements each, so that enough bytes are in flight (see elementwise), with one division for four
// elements. The table is read once for a thread's four elements if they are in one row.

#include "dev.cuh"

constexpr u32 WG = 256;
constexpr u32 NARROW = 0;

struct Row {
    float shift;
    float scale;
    float fill;
    // Elements below this number are missing.
    float least;
};

DEVICE Row load_row(const float* table, u32 row, float least) {
    return {table[3 * row], table[3 * row + 1], table[3 * row + 2], least};
}

// Returns a centred and scaled element, or the fill. NaN is not >= 0, and -0.0 is.
DEVICE float standard(float value, Row row) { return value >= row.least ? (value - row.shift) * row.scale : row.fill; }

// Loads elements `first` to `first + count - 1`, up to four. With `whole`, these are four, and aligned.
template <u32 TYPE> DEVICE void load_values(const void* x, u32 first, u32 count, bool whole, float (&values)[4]) {
    if (whole) {
        load_quad<TYPE>(x, first, values);
    } else {
#pragma unroll
        for (u32 i = 0; i < 4; i++) values[i] = i < count ? load<TYPE>(x, first + i) : 0.0f;
    }
}

KERNEL(standardize, WG / 4)(const void* __restrict__ x, const float* __restrict__ table, float* __restrict__ out, Params params) {
    u32 first = linear_block() * WG + 4 * threadIdx.x;
    u32 len = params.rows * params.cols;
    if (first >= len) return;
    u32 count = min(len - first, 4u);
    bool whole = count == 4 && ((params.x0 | params.out0) & 3) == 0;
    table += params.table0;
    out += params.out0 + first;
    float values[4];
    BY_TYPE(NARROW == 1 ? params.x_type : F32, TYPE, load_values<TYPE>(x, params.x0 + first, count, whole, values));
    float least = params.negative_is_missing == 1 ? 0.0f : -bits_float(0x7f800000);
    u32 row = first / params.cols;
    u32 col = first - row * params.cols;
    Row terms = load_row(table, row, least);
    if (col + 4 <= params.cols) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) values[i] = standard(values[i], terms);
    } else {
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            if (col == params.cols && i < count) {
                col = 0;
                terms = load_row(table, ++row, least);
            }
            values[i] = standard(values[i], terms);
            col++;
        }
    }
    if (whole) {
        *(float4*)out = {values[0], values[1], values[2], values[3]};
    } else {
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            if (i < count) out[i] = values[i];
        }
    }
}
EXPORT(standardize)
