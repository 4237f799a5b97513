// Memory used by more than a word at once: out = 32 pairs, 32 quads and 32 x 4 words of in, by each way there is.
// Grid: one block of 32 threads.
// Bindings: 0 in (128) u32 read; 1 out (320) u32 write; 2 params, not used.
// Constants: none.

#include "dev.cuh"

struct Params {
    u32 zero;
};

KERNEL(vectors, 32)(const u32* __restrict__ in, u32* __restrict__ out, Params params) {
    SHARED(u32, rows, 4 * 32 + 4);
    u32 lane = threadIdx.x;
    uint2 pair = *(const uint2*)(in + 2 * lane);
    uint4 quad = *(const uint4*)(in + 4 * lane % 64);
    copy_async16(rows + 4 * lane, in + 4 * lane, 16);
    copy_commit();
    copy_wait<0>();
    __syncthreads();
    u32 matrices[4];
    load_matrix_x4(matrices, rows + 4 * lane);
    *(uint2*)(out + 2 * lane) = pair;
    *(float4*)(out + 64 + 4 * lane) = {bits_float(quad.x), bits_float(quad.y), bits_float(quad.z), bits_float(quad.w)};
    for (u32 m = 0; m < 4; m++) out[192 + 32 * m + lane] = matrices[m];
}
EXPORT(vectors)
