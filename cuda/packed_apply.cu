// Packed rows times digits: y = s (sum g x - mean sum x) over what is not missing, or the digits of s y and of mean s y.
// Grid: linear, one block per TILE rows.
// Bindings: 0 packed (rows, words) read; 1 xs (4 words, lanes) read; 2 table (rows, 2) of mean, s, f32 read; 3 columns (columns, 2) of total, factor, f32 read; 4 out write; 5 params.
// Constants: TILE; MISSING whether code 3 occurs; DIGITS whether out is (rows / 4, sets lanes) digits, else (rows, columns) f32.
// Hardware: a warp makes 32 rows of 64 lanes by products of 16 x 32 x 8 bytes. What a thread loads of a row, 16 bytes, is its
// own part of both operands' order, so that a shift and a mask decode it where it is needed; 8 loads of 8 bytes from shared
// memory then serve 16 products, half of what those take. Blocks of 256 rows read the digits as often from the L2 cache as
// the packed rows from memory; with 64 rows the digits would take longer than the products. The next 64 quads are copied in
// the background, and the next words of the rows are on their way, while 64 quads are multiplied. Missing codes have sums of
// their own, and products only where a warp meets one in its 64 quads of a word.

#include "dev.cuh"

struct Params {
    u32 rows;
    u32 words;
    u32 columns;
    u32 lanes;
    u32 packed0;
    u32 table0;
    u32 out0;
    u32 zero;
};

constexpr u32 TILE = 64;
constexpr u32 MISSING = 0;
constexpr u32 DIGITS = 0;

constexpr u32 THREADS = TILE;
// Sums take 64 registers, which leaves room for two large blocks; 0: as many as there are.
constexpr u32 BLOCKS = TILE == 256 && MISSING == 0 ? 2 : 0;
// Words of a row that a block holds at once: 4 of each thread of a group of four. A quad of digits is a row of their tile.
constexpr u32 CHUNK = 16;
constexpr u32 SPAN = 4 * CHUNK / 4;
constexpr u32 SLICE = DIGIT_TILE<4 * CHUNK, SPAN>;
constexpr u32 SETS = 1 + MISSING;
// Words of the sums of 8 rows, by which a warp hands them over.
constexpr u32 PART = 8 * DIGIT_LANES;
static_assert(THREADS / WARP * SETS * PART <= 2 * SLICE, "sums take the place of digits");

// Sums of two tiles of 16 rows by 8 tiles of 8 lanes.
typedef i32 Sums[2][DIGIT_LANES / 8][4];

// Half of the thread's part of the chunk at `word`, which is 16 bytes of a row of each eight from `first_row` on; zeros beyond the rows.
DEVICE void load_rows(uint2 (&held)[4], const u32* packed, u32 first_row, u32 word, u32 half, const Params& params) {
    u32 lane = threadIdx.x % WARP;
    word += 4 * (lane % 4);
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        held[i] = {0, 0};
        u32 row = first_row + lane / 4 + 8 * i;
        if (word >= params.words || row >= params.rows) continue;
        held[i] = ((const uint2*)packed)[(params.packed0 + row * params.words + word) / 2 + half];
    }
}

// The operand of two quads, from bit `shift` on, of a word of two rows.
DEVICE void decode(u32 (&codes)[4], u32 row, u32 row8, u32 shift, u32 mask) {
    codes[0] = row >> shift & mask;
    codes[1] = row8 >> shift & mask;
    codes[2] = row >> (shift + 2) & mask;
    codes[3] = row8 >> (shift + 2) & mask;
}

// Adds the products of one word of each of the thread's rows; ANY: some codes are missing, as `masks` says.
template <u32 PAIRS, bool ANY>
DEVICE void multiply_word(Sums& sums, Sums& absent, const u32 (&words)[4], const u32 (&masks)[4], const u32* digits) {
#pragma unroll
    for (u32 half = 0; half < 2; half++) {
        u32 codes[2][4];
        u32 missing[2][4];
#pragma unroll
        for (u32 m = 0; m < 2; m++) {
            decode(codes[m], words[2 * m], words[2 * m + 1], 4 * half, 0x03030303u);
            if constexpr (ANY) decode(missing[m], masks[2 * m], masks[2 * m + 1], 4 * half, 0x01010101u);
        }
        const u32* quad = digits + 2 * half * DIGIT_LANES;
#pragma unroll
        for (u32 p = 0; p < PAIRS; p++) {
            uint2 first = *(const uint2*)(quad + 16 * p);
            uint2 second = *(const uint2*)(quad + DIGIT_LANES + 16 * p);
            u32 even[2] = {first.x, second.x};
            u32 odd[2] = {first.y, second.y};
#pragma unroll
            for (u32 m = 0; m < 2; m++) {
                mma_s8s8(sums[m][2 * p], codes[m], even);
                mma_s8s8(sums[m][2 * p + 1], codes[m], odd);
                if constexpr (ANY) {
                    mma_s8s8(absent[m][2 * p], missing[m], even);
                    mma_s8s8(absent[m][2 * p + 1], missing[m], odd);
                }
            }
        }
    }
}

// Adds the products of half a chunk; `digits`: the thread's part of its slice.
template <u32 PAIRS> DEVICE void multiply(Sums& sums, Sums& absent, const uint2 (&held)[4], const u32* digits) {
#pragma unroll
    for (u32 w = 0; w < 2; w++) {
        u32 words[4];
        u32 masks[4] = {};
#pragma unroll
        for (u32 i = 0; i < 4; i++) words[i] = w == 0 ? held[i].x : held[i].y;
        const u32* quads = digits + 4 * w * DIGIT_LANES;
        if constexpr (MISSING == 1) {
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                masks[i] = words[i] & words[i] >> 1 & 0x55555555u;
                words[i] ^= 3 * masks[i];
            }
            if (warp_any((masks[0] | masks[1] | masks[2] | masks[3]) != 0)) {
                multiply_word<PAIRS, true>(sums, absent, words, masks, quads);
                continue;
            }
        }
        multiply_word<PAIRS, false>(sums, absent, words, masks, quads);
    }
}

// The sums of a pass over a warp's rows from `first_row` on, where there are any; all warps have to take part.
template <u32 PAIRS>
DEVICE void accumulate(Sums& sums, Sums& absent, const u32* packed, u32 first_row, u32* slices, const u32* xs,
                       DigitColumns columns, const Params& params) {
    u32 lane = threadIdx.x % WARP;
    u32 own = digit_row<SPAN>(lane % 4 * SPAN) + 2 * (lane / 4);
    uint2 next[2][4];
    fetch_digits<THREADS, 4 * CHUNK, SPAN>(slices, xs, params.lanes, 4 * params.words, columns);
    copy_commit();
    load_rows(next[0], packed, first_row, 0, 0, params);
    load_rows(next[1], packed, first_row, 0, 1, params);
#pragma unroll 1
    for (u32 word = 0; word < params.words; word += CHUNK) {
        // The slice is in its place; the other one is free, since all have read it.
        copy_wait<0>();
        __syncthreads();
        u32* slice = slices + word / CHUNK % 2 * SLICE;
        u32 after = word + CHUNK;
        if (after < params.words) {
            fetch_digits<THREADS, 4 * CHUNK, SPAN>(slices + after / CHUNK % 2 * SLICE, xs + 4 * after * params.lanes,
                                                   params.lanes, 4 * (params.words - after), columns);
            copy_commit();
        }
        // By halves, so that less is held at once.
#pragma unroll
        for (u32 half = 0; half < 2; half++) {
            uint2 held[4] = {next[half][0], next[half][1], next[half][2], next[half][3]};
            load_rows(next[half], packed, first_row, after, half, params);
            if (first_row < params.rows) multiply<PAIRS>(sums, absent, held, slice + own + 8 * half * DIGIT_LANES);
        }
    }
}

// Leaves the thread's sums of row `half` of its tile in a part, [8 rows][64 lanes].
DEVICE void hand_over(u32* part, const i32 (&tile)[DIGIT_LANES / 8][4], u32 half) {
    u32 lane = threadIdx.x % WARP;
    u32* place = part + lane / 4 * DIGIT_LANES + 4 * (lane % 4);
#pragma unroll
    for (u32 p = 0; p < DIGIT_LANES / 16; p++) *(int4*)(place + 16 * p) = four_lanes(tile[2 * p], tile[2 * p + 1], half);
}

// The number that three sums of digits stand for. Products with 256 are exact, fused or not.
DEVICE float join(const u32* sums, u32 width) {
    return ((float)(i32)sums[2 * width] * 256.0f + (float)(i32)sums[width]) * 256.0f + (float)(i32)sums[0];
}

// y before the factor of its column, from the sums of a row and what stands beside it in the table.
DEVICE float standardized(const u32* sums, float2 row, float total, u32 width) {
    float present = MISSING == 1 ? total - join(sums + PART, width) : total;
    return (join(sums, width) - rounded_product(row.x, present)) * row.y;
}

// The digits of the nearest whole number, in the lower three bytes. A byte of -128 to 127 differs from that of the number
// plus 128 in each byte by its highest bit.
DEVICE u32 digits_of(float weight) {
    float multiple = fminf(fmaxf(rintf(weight), -8355711.0f), 8355711.0f);
    return (u32)((i32)multiple + 0x808080) ^ 0x808080u;
}

// Byte `i` of each of four words.
DEVICE u32 byte_of_each(const u32 (&words)[4], u32 i) {
    u32 selector = i | (i + 4) << 4;
    return byte_permute(byte_permute(words[0], words[1], selector), byte_permute(words[2], words[3], selector), 0x5410);
}

// y of a warp's 8 rows from `row` on.
DEVICE void store_numbers(u32* out, const u32* part, u32 row, const float2* table, const float2* terms, DigitColumns columns, u32 rows) {
#pragma unroll 1
    for (u32 i = threadIdx.x % WARP; i < 8 * columns.count; i += WARP) {
        u32 down = i / columns.count;
        u32 column = i - down * columns.count;
        if (row + down >= rows) return;
        float2 term = terms[columns.first + column];
        float y = standardized(part + down * DIGIT_LANES + column, table[row + down], term.x, columns.width);
        out[(row + down) * columns.all + columns.first + column] = float_bits(y * term.y);
    }
}

// The digits of w and of mean w of a warp's 8 rows from `row` on, four to a word.
DEVICE void store_digits(u32* out, const u32* part, u32 row, const float2* table, const float2* terms, DigitColumns columns, const Params& params) {
#pragma unroll 1
    for (u32 i = threadIdx.x % WARP; i < 2 * columns.count; i += WARP) {
        u32 down = i / columns.count * 4;
        u32 column = i % columns.count;
        if (row + down >= params.rows) return;
        float2 term = terms[columns.first + column];
        u32 digits[SETS][4] = {};
#pragma unroll
        for (u32 k = 0; k < 4; k++) {
            if (row + down + k < params.rows) {
                float2 scales = table[row + down + k];
                const u32* sums = part + (down + k) * DIGIT_LANES + column;
                float weight = standardized(sums, scales, term.x, columns.width) * scales.y * term.y;
                digits[0][k] = digits_of(weight);
                if constexpr (MISSING == 1) digits[1][k] = digits_of(weight * scales.x);
            }
        }
        u32* place = out + (row + down) / 4 * SETS * params.lanes + columns.first + column;
#pragma unroll
        for (u32 set = 0; set < SETS; set++) {
#pragma unroll
            for (u32 slice = 0; slice < 3; slice++) {
                place[set * params.lanes + slice * columns.all] = byte_of_each(digits[set], slice);
            }
        }
    }
}

// Zeros in the lanes beyond those of the columns.
DEVICE void clear_padding(u32* out, u32 first_row, const Params& params) {
    u32 padding = params.lanes - 3 * params.columns;
#pragma unroll 1
    for (u32 i = threadIdx.x; i < TILE / 4 * SETS * padding; i += THREADS) {
        // The set of four rows.
        u32 set = i / padding;
        if (first_row + set / SETS * 4 >= params.rows) return;
        out[(first_row / 4 * SETS + set) * params.lanes + 3 * params.columns + i - set * padding] = 0;
    }
}

KERNEL(packed_apply, THREADS, BLOCKS)(const u32* __restrict__ packed, const u32* __restrict__ xs, const float* __restrict__ table, const float* __restrict__ columns, u32* __restrict__ out, Params params) {
    SHARED(u32, slices, 2 * SLICE);
    u32 block = linear_block();
    // Not by the first row, which may wrap in the last blocks of a folded grid.
    if (block > (params.rows - 1) / TILE) return;
    u32 warp = threadIdx.x / WARP;
    // A warp has as many rows as threads.
    u32 first_row = block * TILE + warp * WARP;
    if constexpr (DIGITS == 1) clear_padding(out + params.out0, block * TILE, params);
    for (u32 first = 0; first < params.columns;) {
        DigitColumns pass = digit_columns(params.columns, first);
        Sums sums = {};
        Sums absent = {};
        switch (digit_pairs(pass)) {
        case 1:
        case 2: accumulate<2>(sums, absent, packed, first_row, slices, xs, pass, params); break;
        case 3: accumulate<3>(sums, absent, packed, first_row, slices, xs, pass, params); break;
        default: accumulate<4>(sums, absent, packed, first_row, slices, xs, pass, params);
        }
        u32* part = slices + warp * SETS * PART;
#pragma unroll 1
        for (u32 i = 0; i < 4; i++) {
            __syncthreads();
            // By constant indices, which keeps sums in registers.
#pragma unroll
            for (u32 j = 0; j < 4; j++) {
                if (i == j) {
                    hand_over(part, sums[j / 2], j % 2);
                    if constexpr (MISSING == 1) hand_over(part + PART, absent[j / 2], j % 2);
                }
            }
            __syncthreads();
            const float2* rows_table = (const float2*)(table + params.table0);
            if constexpr (DIGITS == 1) store_digits(out + params.out0, part, first_row + 8 * i, rows_table, (const float2*)columns, pass, params);
            else store_numbers(out + params.out0, part, first_row + 8 * i, rows_table, (const float2*)columns, pass, params.rows);
        }
        // The next pass's digits take the place of the sums.
        __syncthreads();
        first += pass.width;
    }
}
EXPORT(packed_apply)
