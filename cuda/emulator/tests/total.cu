// Sums of blocks of 256 elements: by shuffles in each warp, then by the first warp.
// Grid: linear, 256 threads, each one element.
// Bindings: 0 in (len) f32 read; 1 out (blocks) f32 write; 2 params { len }.
// Constants: none.

#include "dev.cuh"

struct Params {
    u32 len;
};

KERNEL(total, 256)(const float* __restrict__ in, float* __restrict__ out, Params params) {
    SHARED(float, sums, 8);
    u32 i = linear_block() * 256 + threadIdx.x;
    float sum = i < params.len ? in[i] : 0.0f;
    for (u32 mask = 16; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        float part = threadIdx.x < 8 ? sums[threadIdx.x] : 0.0f;
        for (u32 mask = 4; mask > 0; mask /= 2) part += shuffle_xor(part, mask);
        if (threadIdx.x == 0) out[linear_block()] = part;
    }
}
EXPORT(total)
