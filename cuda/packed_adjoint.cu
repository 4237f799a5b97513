// Adds codes times limbs, and the second set of limbs for missing codes, over rows: sums[entry, column] += 64-bit integers.
// Grid: linear, one block per TILE words, PART_COLUMNS columns and depth rows; those of the same words and columns add to the same sums.
// Bindings: 0 packed (rows, words) read; 1 weights (rows / 4, sets row limbs) read; 2 sums (entries, columns, 2) u32 read and written; 3 params.
// Constants: TILE; MISSING whether code 3 occurs: two sets of limbs; LIMBS of a weight, at most 3.
// Hardware: a warp computes 64 entries of 64 limbs with products of 16 x 32 x 8 bytes. Limbs are the first operand; the second has four
// rows' codes of one entry: matrices of 16-bit cells are loaded transposed, a byte permutation joins four rows, and a shift and a mask give
// each entry. 9 loads from shared memory and some 35 such operations serve 32 products, which take several times as long. A block of 256
// entries reads as many bytes of limbs as of packed rows. Two stages of 64 rows are in flight while one is multiplied. Slots of packed rows
// are an odd number of 16 bytes apart, so that eight slots are in all banks. Missing codes are multiplied only if a warp meets one in 32
// rows. Sums meet in shared memory, and each number is one 64-bit addition in the L2 cache.

#include "dev.cuh"

constexpr u32 TILE = 4;
constexpr u32 MISSING = 0;
constexpr u32 LIMBS = 3;

// The number of columns of a block.
constexpr u32 PART_COLUMNS = 64;
// Each warp takes 16 bytes of a row, which are 64 entries.
constexpr u32 WARPS = TILE / 4;
constexpr u32 THREADS = WARPS * WARP;
// Sums take 128 registers, which leaves room for three large blocks. With 0, a thread may have any number of registers.
constexpr u32 BLOCKS = TILE == 16 && MISSING == 0 ? 3 : 0;
constexpr u32 SETS = 1 + MISSING;
// The number of rows of a stage, and of words from one of its slots for packed rows to the next.
constexpr u32 DEPTH = 64;
constexpr u32 SLOT = 4 * (WARPS | 1);
// A stage has the slots, and then a tile of limbs for each set, with a row for each four packed rows.
constexpr u32 LIMB_WORDS = LIMB_TILE<DEPTH / 4, 1>;
constexpr u32 STAGE = DEPTH * SLOT + SETS * LIMB_WORDS;
constexpr u32 STAGES = 3;
// The number of words of the sums of 16 entries, in which a warp hands them over.
constexpr u32 PART = 16 * TILE_LIMBS;
static_assert(WARPS * PART <= STAGES * STAGE, "sums take the place of stages");

// The sums of eight tiles of 8 entries by four tiles of 16 limbs.
typedef i32 Sums[8][TILE_LIMBS / 16][4];

// The rows that a block multiplies, from `first` to `end - 1`, and the first of their words.
struct Work {
    const u32* packed;
    const u32* weights;
    u32 first;
    u32 end;
    u32 word;
};

// Returns the slot of a row. Of 16 rows, the first two of each four come first and then the others, as transposed loads need them.
DEVICE u32 slot(u32 row) { return row / 16 * 16 + row / 2 % 2 * 8 + row / 4 % 4 * 2 + row % 2; }

// Starts one thread's share of the copies of a stage, from row `first` on.
DEVICE void fetch(u32* stage, const Work& work, u32 first, const LimbColumns& columns, const Params& params) {
#pragma unroll
    for (u32 i = 0; i < DEPTH * WARPS; i += THREADS) {
        u32 down = (i + threadIdx.x) / WARPS;
        u32 across = 4 * (threadIdx.x % WARPS);
        u32 row = first + down;
        u32 word = work.word + across;
        bool inside = row < work.end && word < params.word_count;
        const u32* from = work.packed + (inside ? params.packed0 + row * params.words + params.word0 + word : 0);
        copy_async16(stage + slot(down) * SLOT + across, from, inside ? 16 : 0);
    }
    u32 width = SETS * params.row_limbs;
    const u32* weights = work.weights + params.weights0 + first / 4 * width;
    for (u32 set = 0; set < SETS; set++) {
        fetch_limbs<THREADS, DEPTH / 4, 1, LIMBS>(stage + DEPTH * SLOT + set * LIMB_WORDS, weights + set * params.row_limbs, width,
                                            div_ceil(work.end - first, 4), columns);
    }
}

// Adds the products of 32 rows. `bytes[i]` has byte i % 2 of the thread's 16-bit cell in four rows; i / 2 names which of the thread's two
// groups of four. `limbs` is the thread's part of the limbs.
template <u32 TILES> DEVICE void multiply_rows(Sums& sums, const u32 (&bytes)[4], u32 mask, const u32* limbs) {
    u32 codes[8][2];
#pragma unroll
    for (u32 i = 0; i < 8; i++) {
        codes[i][0] = bytes[i / 4] >> (2 * (i % 4)) & mask;
        codes[i][1] = bytes[2 + i / 4] >> (2 * (i % 4)) & mask;
    }
#pragma unroll
    for (u32 p = 0; p < TILES; p++) {
        u32 own[4];
        load_limbs(own, limbs + 16 * p, limbs + limb_row<1>(4) + 16 * p);
#pragma unroll
        for (u32 i = 0; i < 8; i++) mma_s8s8(sums[i][p], own, codes[i]);
    }
}

// Adds the products of a stage.
template <u32 TILES> DEVICE void multiply(Sums& sums, const u32* stage) {
    u32 lane = threadIdx.x % WARP;
    const u32* cells = stage + lane * SLOT + 4 * (threadIdx.x / WARP);
    const u32* limbs = stage + DEPTH * SLOT + limb_row<1>(lane % 4) + 2 * (lane / 4);
    // Each thread names one row.
#pragma unroll
    for (u32 step = 0; step < DEPTH / WARP; step++) {
        u32 pairs[4];
        load_matrix_x4_trans(pairs, cells + step * WARP * SLOT);
        u32 bytes[4] = {byte_permute(pairs[0], pairs[1], 0x6420), byte_permute(pairs[0], pairs[1], 0x7531),
                        byte_permute(pairs[2], pairs[3], 0x6420), byte_permute(pairs[2], pairs[3], 0x7531)};
        const u32* fours = limbs + limb_row<1>(step * WARP / 4);
        if constexpr (MISSING == 1) {
            u32 masks[4];
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                masks[i] = bytes[i] & bytes[i] >> 1 & 0x55555555u;
                bytes[i] ^= 3 * masks[i];
            }
            if (warp_any((masks[0] | masks[1] | masks[2] | masks[3]) != 0)) {
                multiply_rows<TILES>(sums, masks, 0x01010101u, fours + LIMB_WORDS);
            }
        }
        multiply_rows<TILES>(sums, bytes, 0x03030303u, fours);
    }
}

// Computes the sums of a pass over the block's rows.
template <u32 TILES>
DEVICE void accumulate(Sums& sums, u32* stages, const Work& work, const LimbColumns& columns, const Params& params) {
    // The number of rows that are loaded ahead.
    constexpr u32 AHEAD = (STAGES - 1) * DEPTH;
#pragma unroll 1
    for (u32 row = work.first, i = 0; row < work.end + AHEAD; row += DEPTH, i = (i + 1) % STAGES) {
        bool ready = row >= work.first + AHEAD;
        // After this barrier, all threads have read the place that is filled next.
        if (ready) {
            copy_wait<STAGES - 2>();
            __syncthreads();
        }
        if (row < work.end) fetch(stages + i * STAGE, work, row, columns, params);
        copy_commit();
        if (ready) multiply<TILES>(sums, stages + (i + 1) % STAGES * STAGE);
    }
}

// Adds a warp's sums to those of all blocks, from entry `entry` on. The sums are those of tiles `tile` and `tile` + 1, each of which has
// one of each eight consecutive entries.
DEVICE void add(u64* sums, const u32* part, u32 entry, u32 tile, const LimbColumns& columns, u32 entries, u32 shift) {
#pragma unroll 1
    for (u32 i = threadIdx.x % WARP; i < 16 * columns.count; i += WARP) {
        u32 row = i / columns.count;
        u32 column = i - row * columns.count;
        u32 at = entry + row % 8 * 8 + tile + row / 8;
        const u32* limbs = part + row * TILE_LIMBS + column;
        i64 sum = (i32)limbs[0];
#pragma unroll
        for (u32 t = 1; t < LIMBS; t++) sum += (i64)(i32)limbs[t * columns.width] * (1 << (8 * t));
        if (at < entries) add_atomic(sums + at * columns.all + columns.first + column, (u64)sum << shift);
    }
}

KERNEL(packed_adjoint, THREADS, BLOCKS)(const u32* __restrict__ packed, const u32* __restrict__ weights, u32* __restrict__ sums, Params params) {
    SHARED(u32, stages, STAGES * STAGE);
    u32 tiles = div_ceil(params.word_count, TILE);
    u32 parts = div_ceil(params.columns, PART_COLUMNS);
    u32 block = linear_block();
    // Blocks with adjacent numbers read adjacent words of the same rows.
    u32 part_of_split = block / tiles;
    u32 first_word = (block - part_of_split * tiles) * TILE;
    u32 split = part_of_split / parts;
    u32 first = (part_of_split - split * parts) * PART_COLUMNS;
    // The first row is not compared, since it may overflow in the last blocks of a folded grid.
    if (split > (params.rows - 1) / params.depth) return;
    u32 first_row = split * params.depth;
    u32 end = first_row + min(params.rows - first_row, params.depth);
    Work work = {packed, weights, first_row, end, first_word};
    u32 warp = threadIdx.x / WARP;
    // Passes of a whole part are equally wide, so that the next part begins where they end.
    do {
        u32 start = first / PART_COLUMNS * PART_COLUMNS;
        LimbColumns pass = limb_columns<LIMBS>(start, min(params.columns, start + PART_COLUMNS), params.columns, first);
        Sums own = {};
        switch (limb_tiles<LIMBS>(pass)) {
        case 1:
        case 2: accumulate<2>(own, stages, work, pass, params); break;
        case 3: accumulate<3>(own, stages, work, pass, params); break;
        default: accumulate<4>(own, stages, work, pass, params);
        }
        u32* part = stages + warp * PART;
#pragma unroll 1
        for (u32 i = 0; i < 8; i += 2) {
            __syncthreads();
            // Indices are constant, which keeps the sums in registers.
#pragma unroll
            for (u32 j = 0; j < 8; j += 2) {
                if (i == j) {
                    store_sums(part, own[j]);
                    store_sums(part + PART / 2, own[j + 1]);
                }
            }
            __syncthreads();
            add((u64*)(sums + params.sums0), part, 16 * first_word + 64 * warp, i, pass, params.entries, params.shift);
        }
        // The stages of the next pass overwrite the sums.
        __syncthreads();
        first += pass.width;
    } while (first % PART_COLUMNS != 0 && first < params.columns);
}
EXPORT(packed_adjoint)
