// Sums of blocks of 256 elements: by shuffles in each warp, then by the first warp.
// Grid: linear, 256 threads, each one element.
// Bindings: 0 in (len) f32 read; 1 out (blocks) f32 write; 2 len.

EMULATOR_KERNEL(total, 256)(const float* __restrict__ in, float* __restrict__ out, unsigned len) {
    EMULATOR_SHARED(float, sums, 8);
    unsigned block = blockIdx.y * gridDim.x + blockIdx.x;
    unsigned i = block * 256 + threadIdx.x;
    float sum = i < len ? in[i] : 0.0f;
    for (unsigned mask = 16; mask > 0; mask /= 2) sum += __shfl_xor_sync(~0u, sum, mask);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        float part = threadIdx.x < 8 ? sums[threadIdx.x] : 0.0f;
        for (unsigned mask = 4; mask > 0; mask /= 2) part += __shfl_xor_sync(~0u, part, mask);
        if (threadIdx.x == 0) out[block] = part;
    }
}
EMULATOR_EXPORT(total)
