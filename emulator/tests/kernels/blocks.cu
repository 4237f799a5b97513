// Blocks that change the same memory: out[0] += sum of in, out[1] = the largest, out[2 + i] = in[i] plus what was there.
// Grid: linear, one thread an element.
// Bindings: 0 in (len) u32 read; 1 out (2 + len) u32 read and written; 2 len.

EMULATOR_KERNEL(blocks, 32)(const unsigned* __restrict__ in, unsigned* __restrict__ out, unsigned len) {
    unsigned i = (blockIdx.y * gridDim.x + blockIdx.x) * 32 + threadIdx.x;
    if (i >= len) return;
    unsigned value = in[i];
    atomicAdd(out, value);
    atomicMax(out + 1, value);
    unsigned before = out[2 + i];
    out[2 + i] = before + value;
}
EMULATOR_EXPORT(blocks)
