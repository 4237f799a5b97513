// Does one operation many times, to measure its rate: MODE 0 multiplies bytes, 16 products of 16 x 32 x 8 by each warp in turn; 1 adds to
// sums of 64 bits; 2 reads 16 bytes at a time.
// Grid: linear. Bindings: 0 data (words) read and written; 1 params.

#include "dev.cuh"

struct Params {
    u32 rounds;
    // The number of sums, a multiple of THREADS; or of groups of four words.
    u32 len;
};

constexpr u32 MODE = 0;
constexpr u32 THREADS = 128;

KERNEL(rates, THREADS)(u32* data, Params params) {
    if (params.len < THREADS) return;
    u32 block = linear_block();
    u32 blocks = gridDim.x * gridDim.y;
    if constexpr (MODE == 0) {
        i32 sums[16][4] = {};
        u32 limbs[4] = {threadIdx.x, 1, 2, 3};
        u32 codes[2] = {5, threadIdx.x};
        for (u32 round = 0; round < params.rounds; round++) {
#pragma unroll
            for (u32 i = 0; i < 16; i++) mma_s8s8(sums[i], limbs, codes);
        }
        i32 all = 0;
        for (u32 i = 0; i < 16; i++) all += sums[i][0] + sums[i][1] + sums[i][2] + sums[i][3];
        // This keeps the compiler from leaving out the sums, which nobody reads.
        if (all == 0x12345678) data[0] = all;
    } else if constexpr (MODE == 1) {
        u64* sums = (u64*)data;
        u32 spans = params.len / THREADS;
        for (u32 round = 0; round < params.rounds; round++) {
            u32 span = (block * 977 + round * blocks) % spans;
            add_atomic(sums + span * THREADS + threadIdx.x, 1);
        }
    } else {
        uint4 all = {0, 0, 0, 0};
        for (u32 round = 0; round < params.rounds; round++) {
            // Each round reads another block's part, which the multiprocessor's own cache does not have.
            u32 first = (block + round) % blocks * THREADS + threadIdx.x;
            for (u32 i = first; i < params.len; i += blocks * THREADS) {
                uint4 four = ((const uint4*)data)[i];
                all.x ^= four.x;
                all.y ^= four.y;
                all.z ^= four.z;
                all.w ^= four.w;
            }
        }
        if ((all.x | all.y | all.z | all.w) == 0x12345678) data[0] = all.x;
    }
}
EXPORT(rates)
