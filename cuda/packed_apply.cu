// Packed rows times limbs: y = s (sum g x - mean sum x) over the codes that are not missing, or the limbs of s y and of mean s y.
// Grid: linear, one block per TILE rows.
// Bindings: 0 packed (rows, words) read; 1 xs (4 words, row limbs) read; 2 table (rows, 2) of mean, s, f32 read; 3 columns (columns, 2) of total, factor, f32 read; 4 out write; 5 params.
// Constants: TILE; MISSING whether code 3 occurs; AS_LIMBS whether out is (rows / 4, sets row limbs) limbs, else (rows, columns) f32.
// Hardware: a warp computes 32 rows of 64 limbs with products of 16 x 32 x 8 bytes, limbs first. The 16 bytes that a thread loads of a row
// are its own part of both operands' order, so that a shift and a mask decode them in place. 16 loads of 8 bytes from shared memory and 14
// such operations then serve 32 products, which take several times as long. A block of 256 rows reads as many bytes of limbs, from the L2
// cache, as of packed rows; with 64 rows, limbs would take longer than products. While 64 quads are multiplied, the next 64 are copied in
// the background, and the next words of the rows are in flight. Missing codes have separate sums, and are multiplied only if a warp meets
// one in a word of its rows.

#include "dev.cuh"

constexpr u32 TILE = 64;
constexpr u32 MISSING = 0;
constexpr u32 AS_LIMBS = 0;

constexpr u32 THREADS = TILE;
// Sums take 64 registers, which leaves room for two large blocks. With 0, a thread may have any number of registers.
constexpr u32 BLOCKS = TILE == 256 && MISSING == 0 ? 2 : 0;
// The number of words of a row that a block holds at once: 4 of each thread of a group of four. A quad of limbs is a row of their tile.
constexpr u32 CHUNK = 16;
constexpr u32 SPAN = 4 * CHUNK / 4;
// The number of words from those of a row that are multiplied to those that are loaded into the L2 cache.
constexpr u32 AHEAD = 3 * CHUNK;
constexpr u32 STAGE = LIMB_TILE<4 * CHUNK, SPAN>;
constexpr u32 SETS = 1 + MISSING;
// The number of words of the sums of 8 rows, in which a warp hands them over.
constexpr u32 PART = 8 * TILE_LIMBS;
static_assert(THREADS / WARP * SETS * PART <= 2 * STAGE, "sums take the place of limbs");

// The sums of four tiles of 8 rows by four tiles of 16 limbs.
typedef i32 Sums[4][TILE_LIMBS / 16][4];

// Loads half of the thread's part of the chunk at `word`: 16 bytes of `row`, and of the rows 8, 16 and 24 further on. Words beyond the rows
// are zero.
DEVICE void load_rows(uint2 (&held)[4], const u32* packed, u32 row, u32 word, u32 half, const Params& params) {
    word += 4 * (threadIdx.x % 4);
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        held[i] = {0, 0};
        if (word >= params.words || row + 8 * i >= params.rows) continue;
        held[i] = ((const uint2*)packed)[(params.packed0 + (row + 8 * i) * params.words + word) / 2 + half];
    }
}

// Loads the thread's part of the chunk at `word` into the L2 cache, since loads from memory take longer than the products of a chunk.
DEVICE void fetch_rows(const u32* packed, u32 row, u32 word, const Params& params) {
    word += 4 * (threadIdx.x % 4);
    if (word >= params.words) return;
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        if (row + 8 * i < params.rows) fetch_ahead(packed + params.packed0 + (row + 8 * i) * params.words + word);
    }
}

// Adds the products of words without code 3. With ANY, some codes are missing, as `masks` says.
template <u32 TILES, bool ANY>
DEVICE void multiply_word(Sums& sums, Sums& absent, const u32 (&words)[4], const u32 (&masks)[4], const u32* limbs) {
#pragma unroll
    for (u32 quad = 0; quad < 4; quad += 2) {
        u32 codes[4][2];
        u32 missing[4][2];
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
#pragma unroll
            for (u32 j = 0; j < 2; j++) {
                codes[i][j] = words[i] >> (2 * (quad + j)) & 0x03030303u;
                missing[i][j] = masks[i] >> (2 * (quad + j)) & 0x01010101u;
            }
        }
#pragma unroll
        for (u32 p = 0; p < TILES; p++) {
            u32 own[4];
            const u32* first = limbs + quad * TILE_LIMBS + 16 * p;
            load_limbs(own, first, first + TILE_LIMBS);
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                mma_s8s8(sums[i][p], own, codes[i]);
                if constexpr (ANY) mma_s8s8(absent[i][p], own, missing[i]);
            }
        }
    }
}

// Adds the products of one word of each of the thread's rows. `limbs` is the thread's part of its stage.
template <u32 TILES> DEVICE void multiply(Sums& sums, Sums& absent, u32 (&words)[4], const u32* limbs) {
    u32 masks[4] = {};
    if constexpr (MISSING == 1) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            masks[i] = words[i] & words[i] >> 1 & 0x55555555u;
            words[i] ^= 3 * masks[i];
        }
        if (warp_any((masks[0] | masks[1] | masks[2] | masks[3]) != 0)) {
            multiply_word<TILES, true>(sums, absent, words, masks, limbs);
            return;
        }
    }
    multiply_word<TILES, false>(sums, absent, words, masks, limbs);
}

// Computes the sums of a pass over the rows; `row` is the thread's first row.
template <u32 TILES>
DEVICE void accumulate(Sums& sums, Sums& absent, const u32* packed, u32 row, u32* stages, const u32* xs,
                       const LimbColumns& columns, const Params& params) {
    u32 lane = threadIdx.x % WARP;
    u32 own = limb_row<SPAN>(lane % 4 * SPAN) + 2 * (lane / 4);
    uint2 next[2][4];
    fetch_limbs<THREADS, 4 * CHUNK, SPAN>(stages, xs, params.row_limbs, 4 * params.words, columns);
    copy_commit();
    load_rows(next[0], packed, row, 0, 0, params);
    load_rows(next[1], packed, row, 0, 1, params);
    for (u32 ahead = CHUNK; ahead < AHEAD; ahead += CHUNK) fetch_rows(packed, row, ahead, params);
#pragma unroll 1
    for (u32 word = 0; word < params.words; word += CHUNK) {
        // The stage is in its place. The other one is free, since all threads have read it.
        copy_wait<0>();
        __syncthreads();
        u32* stage = stages + word / CHUNK % 2 * STAGE;
        u32 after = word + CHUNK;
        if (after < params.words) {
            fetch_limbs<THREADS, 4 * CHUNK, SPAN>(stages + after / CHUNK % 2 * STAGE, xs + 4 * after * params.row_limbs,
                                                   params.row_limbs, 4 * (params.words - after), columns);
            copy_commit();
        }
        fetch_rows(packed, row, word + AHEAD, params);
        // Words are taken in halves, so that fewer are held at once.
#pragma unroll
        for (u32 half = 0; half < 2; half++) {
            u32 held[2][4];
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                held[0][i] = next[half][i].x;
                held[1][i] = next[half][i].y;
            }
            load_rows(next[half], packed, row, after, half, params);
            const u32* quads = stage + own + 8 * half * TILE_LIMBS;
            multiply<TILES>(sums, absent, held[0], quads);
            multiply<TILES>(sums, absent, held[1], quads + 4 * TILE_LIMBS);
        }
    }
}

// Returns the number that three sums of limbs stand for. Products with 256 are exact, fused or not.
DEVICE float join(const u32* sums, u32 width) {
    return ((float)(i32)sums[2 * width] * 256.0f + (float)(i32)sums[width]) * 256.0f + (float)(i32)sums[0];
}

// Returns y before the factor of its column, from the sums of a row and the row's entries in the table.
DEVICE float standardized(const u32* sums, float2 row, float total, u32 width) {
    float present = MISSING == 1 ? total - join(sums + PART, width) : total;
    return (join(sums, width) - rounded_product(row.x, present)) * row.y;
}

// Returns the limbs of the nearest whole number, in the lower three bytes. A byte from -128 to 127 differs by its highest bit from the byte
// of the number plus 128 in each byte.
DEVICE u32 limbs_of(float weight) {
    float multiple = fminf(fmaxf(rintf(weight), -8355711.0f), 8355711.0f);
    return (u32)((i32)multiple + 0x808080) ^ 0x808080u;
}

// Returns byte `i` of each of four words.
DEVICE u32 byte_of_each(const u32 (&words)[4], u32 i) {
    u32 selector = i | (i + 4) << 4;
    return byte_permute(byte_permute(words[0], words[1], selector), byte_permute(words[2], words[3], selector), 0x5410);
}

// The data besides sums from which results are computed, and the place of the results.
struct Results {
    const float2* table;
    const float2* terms;
    u32* out;
};

// Stores y of a warp's 8 rows from `row` on.
DEVICE void store_numbers(const Results& results, const u32* part, u32 row, const LimbColumns& columns, u32 rows) {
#pragma unroll 1
    for (u32 i = threadIdx.x % WARP; i < 8 * columns.count; i += WARP) {
        u32 down = i / columns.count;
        u32 column = i - down * columns.count;
        if (row + down >= rows) return;
        float2 term = results.terms[columns.first + column];
        const u32* sums = part + down * TILE_LIMBS + column;
        float y = standardized(sums, results.table[row + down], term.x, columns.width);
        results.out[(row + down) * columns.all + columns.first + column] = float_bits(y * term.y);
    }
}

// Stores the limbs of w and of mean w of a warp's 8 rows from `row` on, four to a word.
DEVICE void store_limbs(const Results& results, const u32* part, u32 row, const LimbColumns& columns, const Params& params) {
#pragma unroll 1
    for (u32 i = threadIdx.x % WARP; i < 2 * columns.count; i += WARP) {
        u32 down = i / columns.count * 4;
        u32 column = i % columns.count;
        if (row + down >= params.rows) return;
        float2 term = results.terms[columns.first + column];
        u32 limbs[SETS][4] = {};
#pragma unroll
        for (u32 k = 0; k < 4; k++) {
            if (row + down + k < params.rows) {
                float2 scales = results.table[row + down + k];
                const u32* sums = part + (down + k) * TILE_LIMBS + column;
                float weight = standardized(sums, scales, term.x, columns.width) * scales.y * term.y;
                limbs[0][k] = limbs_of(weight);
                if constexpr (MISSING == 1) limbs[1][k] = limbs_of(weight * scales.x);
            }
        }
        u32* place = results.out + (row + down) / 4 * SETS * params.row_limbs + columns.first + column;
#pragma unroll
        for (u32 set = 0; set < SETS; set++) {
#pragma unroll
            for (u32 limb = 0; limb < 3; limb++) {
                place[set * params.row_limbs + limb * columns.all] = byte_of_each(limbs[set], limb);
            }
        }
    }
}

// Clears the limbs beyond those of the columns, in a block's rows.
DEVICE void clear_padding(u32* out, u32 first_row, const Params& params) {
    u32 padding = params.row_limbs - 3 * params.columns;
#pragma unroll 1
    for (u32 i = threadIdx.x; i < TILE / 4 * SETS * padding; i += THREADS) {
        // The set of four rows.
        u32 set = i / padding;
        if (first_row + set / SETS * 4 >= params.rows) return;
        out[(first_row / 4 * SETS + set) * params.row_limbs + 3 * params.columns + i - set * padding] = 0;
    }
}

KERNEL(packed_apply, THREADS, BLOCKS)(const u32* __restrict__ packed, const u32* __restrict__ xs, const float* __restrict__ table, const float* __restrict__ columns, u32* __restrict__ out, Params params) {
    SHARED(u32, stages, 2 * STAGE);
    SHARED(LimbColumns, pass, 1);
    u32 block = linear_block();
    // The first row is not compared, since it may overflow in the last blocks of a folded grid.
    if (block > (params.rows - 1) / TILE) return;
    u32 warp = threadIdx.x / WARP;
    // A warp has as many rows as threads. A thread has the rows that its operands have.
    u32 row = block * TILE + warp * WARP + threadIdx.x % WARP / 4;
    if constexpr (AS_LIMBS == 1) clear_padding(out + params.out0, block * TILE, params);
    for (u32 first = 0; first < params.columns;) {
        // The pass is in shared memory, since registers are few.
        if (threadIdx.x == 0) *pass = limb_columns(0, params.columns, params.columns, first);
        __syncthreads();
        Sums sums = {};
        Sums absent = {};
        switch (limb_tiles(*pass)) {
        case 1:
        case 2: accumulate<2>(sums, absent, packed, row, stages, xs, *pass, params); break;
        case 3: accumulate<3>(sums, absent, packed, row, stages, xs, *pass, params); break;
        default: accumulate<4>(sums, absent, packed, row, stages, xs, *pass, params);
        }
        u32* part = stages + warp * SETS * PART;
#pragma unroll 1
        for (u32 i = 0; i < 4; i++) {
            __syncthreads();
            // Indices are constant, which keeps the sums in registers.
#pragma unroll
            for (u32 j = 0; j < 4; j++) {
                if (i == j) {
                    store_sums(part, sums[j]);
                    if constexpr (MISSING == 1) store_sums(part + PART, absent[j]);
                }
            }
            __syncthreads();
            u32 first_row = row - threadIdx.x % WARP / 4 + 8 * i;
            Results results = {(const float2*)(table + params.table0), (const float2*)columns, out + params.out0};
            if constexpr (AS_LIMBS == 1) store_limbs(results, part, first_row, *pass, params);
            else store_numbers(results, part, first_row, *pass, params.rows);
        }
        first = pass->first + pass->width;
        // The next pass overwrites the sums.
        __syncthreads();
    }
}
EXPORT(packed_apply)
