// Packed codes to f32: out[i, j] = (code[i, j] - shift) scale, or fill where it is missing, by row of the table.
// Grid: linear, one thread per four samples of a row.
// Bindings: 0 packed (rows, words) read; 1 table (rows, 3) of shift, scale, fill, f32 read; 2 out (rows, samples) f32 write; 3 params.
// Constants: WG.
// Hardware: a byte becomes 16 bytes, so that writing is all of the time: four floats a thread, in one store where rows are
// multiples of 16 bytes.

#include "dev.cuh"

struct Params {
    u32 rows;
    u32 words;
    u32 samples;
    u32 packed0;
    u32 table0;
    u32 out0;
};

constexpr u32 WG = 256;

KERNEL(packed_standardize, WG)(const u32* __restrict__ packed, const float* __restrict__ table, float* __restrict__ out, Params params) {
    u32 item = linear_block() * WG + threadIdx.x;
    u32 bytes = div_ceil(params.samples, 4);
    u32 row = item / bytes;
    if (row >= params.rows) return;
    u32 byte = item - row * bytes;
    u32 codes = packed[params.packed0 + row * params.words + byte / 4] >> (8 * (byte % 4));
    const float* terms = table + params.table0 + 3 * row;
    float shift = terms[0];
    float scale = terms[1];
    float fill = terms[2];
    float values[4];
#pragma unroll
    for (u32 j = 0; j < 4; j++) {
        u32 code = codes >> (2 * j) & 3;
        values[j] = code == 3 ? fill : ((float)code - shift) * scale;
    }
    u32 first = params.out0 + row * params.samples + 4 * byte;
    u32 count = min(params.samples - 4 * byte, 4u);
    if (count == 4 && first % 4 == 0) {
        *(float4*)(out + first) = {values[0], values[1], values[2], values[3]};
    } else {
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            if (j < count) out[first + j] = values[j];
        }
    }
}
EXPORT(packed_standardize)
