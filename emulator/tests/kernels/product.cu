// A tiled product, whose next tiles are on their way while the present ones are multiplied: c = a b.
// Grid: tiles of 16 columns, tiles of 16 rows; 64 threads, each four rows of one column.
// Bindings: 0 a (m, k) f32 read; 1 b (k, n) f32 read; 2 c (m, n) f32 write; 3 params { m, n, k }.

struct Params {
    unsigned m, n, k;
};

constexpr unsigned TILE = 16;
constexpr unsigned DEPTH = 8;

static __device__ void fetch(float* tile_a, float* tile_b, const float* a, const float* b, const Params& params, unsigned first) {
    for (unsigned i = threadIdx.x; i < TILE * DEPTH; i += 64) {
        unsigned row = TILE * blockIdx.y + i / DEPTH, p = first + i % DEPTH;
        bool inside = row < params.m && p < params.k;
        ptx_cp_async4(&tile_a[i], inside ? &a[row * params.k + p] : a, inside ? 4 : 0);
    }
    for (unsigned i = threadIdx.x; i < DEPTH * TILE; i += 64) {
        unsigned p = first + i / TILE, column = TILE * blockIdx.x + i % TILE;
        bool inside = p < params.k && column < params.n;
        ptx_cp_async4(&tile_b[i], inside ? &b[p * params.n + column] : b, inside ? 4 : 0);
    }
    ptx_cp_async_commit_group();
}

EMULATOR_KERNEL(product, 64)(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, Params params) {
    EMULATOR_SHARED(float, tiles_a, 2 * TILE * DEPTH);
    EMULATOR_SHARED(float, tiles_b, 2 * DEPTH * TILE);
    unsigned column = threadIdx.x % TILE, first_row = threadIdx.x / TILE * 4;
    float sums[4] = {};
    unsigned steps = (params.k + DEPTH - 1) / DEPTH;
    fetch(tiles_a, tiles_b, a, b, params, 0);
    for (unsigned step = 0; step < steps; step++) {
        unsigned now = step % 2 * TILE * DEPTH, next = (step + 1) % 2 * TILE * DEPTH;
        fetch(tiles_a + next, tiles_b + next, a, b, params, (step + 1) * DEPTH);
        ptx_cp_async_wait_group<1>();
        __syncthreads();
        for (unsigned p = 0; p < DEPTH; p++) {
            float value = tiles_b[now + p * TILE + column];
            for (unsigned r = 0; r < 4; r++) sums[r] += tiles_a[now + (first_row + r) * DEPTH + p] * value;
        }
        __syncthreads();  // The next fetch overwrites these tiles.
    }
    for (unsigned r = 0; r < 4; r++) {
        unsigned row = TILE * blockIdx.y + first_row + r, place = TILE * blockIdx.x + column;
        if (row < params.m && place < params.n) c[row * params.n + place] = sums[r];
    }
}
EMULATOR_EXPORT(product)
