// Columns times numbers: out[i, j] = x[i, j] s[j].
// Grid: linear, one block per WG elements.
// Bindings: 0 x (rows, cols) f32 read; 1 s (cols) f32 read; 2 out f32 write; 3 params, starts in elements.
// Constants: WG.
// Hardware: WG / 4 threads with 16 bytes each, so that 32 blocks keep 32 KiB in flight on a multiprocessor; with 4 bytes a
// thread, its 2,048 threads would keep 8 KiB, too little to hide the latency of memory. One division for four elements.

#include "dev.cuh"

constexpr u32 WG = 256;

KERNEL(scale_columns, WG / 4)(const float* __restrict__ x, const float* __restrict__ s, float* __restrict__ out, Params params) {
    u32 first = linear_block() * WG + 4 * threadIdx.x;
    u32 len = params.rows * params.cols;
    if (first >= len) return;
    u32 col = first % params.cols;
    x += params.x0 + first;
    out += params.out0 + first;
    bool whole = len - first >= 4 && ((params.x0 | params.out0) & 3) == 0;
    if (whole && (params.cols & 3) == 0) {
        float4 factors = *(const float4*)(s + col);
        float4 values = *(const float4*)x;
        *(float4*)out = {values.x * factors.x, values.y * factors.y, values.z * factors.z, values.w * factors.w};
        return;
    }
    float factors[4];
    for (float& factor : factors) {
        factor = s[col];
        col = col + 1 == params.cols ? 0 : col + 1;
    }
    if (whole) {
        float4 values = *(const float4*)x;
        *(float4*)out = {values.x * factors[0], values.y * factors[1], values.z * factors[2], values.w * factors[3]};
        return;
    }
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        if (i < len - first) out[i] = x[i] * factors[i];
    }
}
EXPORT(scale_columns)
