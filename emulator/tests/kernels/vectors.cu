// Memory used by more than a word at once: out = 32 pairs, 32 quads and 32 x 4 words of in, by each way there is.
// Grid: one block of 32 threads.
// Bindings: 0 in (128) u32 read; 1 out (320) u32 write.

EMULATOR_KERNEL(vectors, 32)(const unsigned* __restrict__ in, unsigned* __restrict__ out) {
    EMULATOR_SHARED(unsigned, rows, 4 * 32 + 4);
    unsigned lane = threadIdx.x;
    uint2 pair = *(const uint2*)(in + 2 * lane);
    uint4 quad = *(const uint4*)(in + 4 * lane % 64);
    ptx_cp_async16(rows + 4 * lane, in + 4 * lane, 16);
    ptx_cp_async_commit_group();
    ptx_cp_async_wait_group<0>();
    __syncthreads();
    unsigned matrices[4];
    ptx_ldmatrix_x4(matrices, rows + 4 * lane);
    *(uint2*)(out + 2 * lane) = pair;
    *(float4*)(out + 64 + 4 * lane) = {__uint_as_float(quad.x), __uint_as_float(quad.y), __uint_as_float(quad.z),
                                       __uint_as_float(quad.w)};
    for (unsigned m = 0; m < 4; m++) out[192 + 32 * m + lane] = matrices[m];
}
EMULATOR_EXPORT(vectors)
