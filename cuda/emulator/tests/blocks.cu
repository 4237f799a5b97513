// What blocks do beside one another: out[0] += sum of in, out[1] = the largest, out[2 + i] = in[i] plus what was there.
// Grid: linear, one thread an element.
// Bindings: 0 in (len) u32 read; 1 out (2 + len) u32 read and written; 2 params { len }.
// Constants: none.

#include "dev.cuh"

struct Params {
    u32 len;
};

KERNEL(blocks, 32)(const u32* __restrict__ in, u32* __restrict__ out, Params params) {
    u32 i = linear_block() * 32 + threadIdx.x;
    if (i >= params.len) return;
    u32 value = in[i];
    atomic_add(out, value);
    atomic_max(out + 1, value);
    u32 before = out[2 + i];
    out[2 + i] = before + value;
}
EXPORT(blocks)
