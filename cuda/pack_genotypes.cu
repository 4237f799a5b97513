// Stored genotypes to codes of two bits, 0 to 2 and 3 for missing, with each row's counts of 1, 2, missing and bad.
// Grid: linear, one block per row.
// Bindings: 0 raw (rows, row_bytes) bytes read; 1 packed (rows, words) write; 2 counts (rows, 4) write; 3 params.
// Constants: WG; CODING 0 one allele, 1 two alleles, 2 dosages, 3 PLINK counting A1, 4 PLINK counting A2, 5 codes.
// Hardware: a thread takes 16 bytes by one load and makes their codes, 2, 4 or 16 bytes, by one store, so that neighbours
// load and store neighbouring places; 1,600 threads a multiprocessor then have 25 KiB in flight, which is what hides the
// latency of memory at full bandwidth. Rows that start elsewhere than at 16 bytes take aligned words, which mostly come from
// the L1 cache, and shift them. Arithmetic is on four bytes at once, without branches: four samples cost less than
// their bytes.

#include "dev.cuh"

struct Params {
    u32 rows;
    u32 samples;
    u32 row_bytes;
    u32 words;
    u32 raw0;
    u32 packed0;
    u32 counts0;
};

constexpr u32 WG = 64;
constexpr u32 CODING = 0;

constexpr bool DIPLOID = CODING == 1;
constexpr bool DOSAGES = CODING == 2;
// Two bits a sample.
constexpr bool FIELDS = CODING >= 3;
// Samples of 16 bytes.
constexpr u32 SAMPLES = FIELDS ? 64 : DIPLOID ? 8 : 16;

// The highest bit of each byte, the others, and the lower bit of each code.
constexpr u32 HIGH = 0x80808080u;
constexpr u32 REST = 0x7f7f7f7fu;
constexpr u32 LOWER = 0x55555555u;

struct Counts {
    u32 ones;
    u32 twos;
    u32 missing;
    u32 bad;
};

// The four codes whose lower and upper bits are the highest of the bytes of `lower` and `upper`, as a byte.
DEVICE u32 gather(u32 lower, u32 upper) {
    u32 codes = (lower & HIGH) >> 7 | (upper & HIGH) >> 6;
    return codes * (1 << 24 | 1 << 18 | 1 << 12 | 1 << 6) >> 24;
}

// What four alleles are, by the highest bit of each byte.
struct Alleles {
    // Above 0.
    u32 alternate;
    // -1, and -2.
    u32 missing;
    u32 absent;
    // Below -2.
    u32 bad;
};

DEVICE Alleles alleles(u32 bytes) {
    // Sums of the lower bits do not leave their byte.
    u32 rest = bytes & REST;
    u32 negative = bytes & HIGH;
    u32 known = rest + 0x02020202u & negative;
    u32 missing = rest + 0x01010101u & negative;
    return {(rest + REST) & ~bytes & HIGH, missing, known & ~missing, negative & ~known};
}

// The codes of four samples of one allele, as a byte. Marks in `bad` what is no allele, as all functions that follow.
DEVICE u32 haploid(u32 bytes, u32& bad) {
    bad = alleles(bytes).bad;
    return gather(bytes | alleles(bytes).alternate, bytes);
}

DEVICE u32 dosages(u32 bytes, u32& bad) {
    u32 rest = bytes & REST;
    // Negative, or above 2.
    u32 missing = (bytes | rest + 0x7d7d7d7du) & HIGH;
    bad = missing & ~(rest + 0x01010101u & bytes);
    return gather(bytes << 7 | missing, bytes << 6 & HIGH | missing);
}

// Of four samples with two alleles each.
DEVICE u32 diploid(u32 low, u32 high, u32& bad) {
    Alleles a = alleles(byte_permute(low, high, 0x6420));
    Alleles b = alleles(byte_permute(low, high, 0x7531));
    bad = a.bad | b.bad;
    u32 missing = bad | a.missing | b.missing | a.absent & b.absent;
    // One allele stands for two.
    u32 both = a.alternate & b.alternate | (a.absent | b.absent) & (a.alternate | b.alternate);
    u32 one = (a.alternate ^ b.alternate) & ~both;
    return gather(one | missing, both | missing);
}

// 16 samples. PLINK's 0, 1, 2 and 3 are two first alleles, missing, one of each, and two second alleles.
DEVICE u32 recode(u32 word) {
    if constexpr (CODING == 5) return word;
    u32 upper = CODING == 3 ? ~word & ~LOWER : (word & LOWER) << 1;
    return upper | (word ^ word >> 1) & LOWER;
}

DEVICE void count(Counts& counts, u32 codes) {
    u32 lower = codes & LOWER;
    u32 upper = codes >> 1 & LOWER;
    counts.ones += popcount(lower & ~upper);
    counts.twos += popcount(upper & ~lower);
    counts.missing += popcount(upper & lower);
}

// Adds how many of the marks of four words stand in a byte each.
DEVICE void count_bad(Counts& counts, const u32 (&bad)[4]) {
    if ((bad[0] | bad[1] | bad[2] | bad[3]) == 0) return;
#pragma unroll
    for (u32 i = 0; i < 4; i++) counts.bad += popcount(bad[i]);
}

// Makes the codes of the row's 16 bytes `unit`, of which `left` samples are the row's, and stores them.
DEVICE void pack(u32* row, u32 unit, const u32 (&bytes)[4], u32 left, Counts& counts) {
    u32 bad[4] = {};
    if constexpr (FIELDS) {
        u32 words[4] = {recode(bytes[0]), recode(bytes[1]), recode(bytes[2]), recode(bytes[3])};
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            u32 samples = left > 16 * i ? left - 16 * i : 0;
            if (samples < 16) words[i] &= ~(0xffffffffu << (2 * samples));
            count(counts, words[i]);
        }
        ((uint4*)row)[unit] = {words[0], words[1], words[2], words[3]};
    } else if constexpr (DIPLOID) {
        u32 codes = diploid(bytes[0], bytes[1], bad[0]) | diploid(bytes[2], bytes[3], bad[1]) << 8;
        count(counts, codes);
        ((u16*)row)[unit] = (u16)codes;
    } else {
        u32 codes = 0;
#pragma unroll
        for (u32 i = 0; i < 4; i++) codes |= (DOSAGES ? dosages(bytes[i], bad[i]) : haploid(bytes[i], bad[i])) << (8 * i);
        count(counts, codes);
        row[unit] = codes;
    }
    count_bad(counts, bad);
}

// The counts of all threads; the first one has them.
DEVICE Counts sum_block(Counts counts) {
    for (u32 mask = WARP / 2; mask > 0; mask /= 2) {
        counts.ones += shuffle_xor(counts.ones, mask);
        counts.twos += shuffle_xor(counts.twos, mask);
        counts.missing += shuffle_xor(counts.missing, mask);
        counts.bad += shuffle_xor(counts.bad, mask);
    }
    SHARED(Counts, partial, WG / WARP);
    if (threadIdx.x % WARP == 0) partial[threadIdx.x / WARP] = counts;
    __syncthreads();
    counts = partial[0];
    for (u32 warp = 1; warp < WG / WARP; warp++) {
        counts.ones += partial[warp].ones;
        counts.twos += partial[warp].twos;
        counts.missing += partial[warp].missing;
        counts.bad += partial[warp].bad;
    }
    return counts;
}

KERNEL(pack_genotypes, WG)(const u32* __restrict__ raw, u32* __restrict__ packed, u32* __restrict__ counts, Params params) {
    u32 row = linear_block();
    if (row >= params.rows) return;
    u32 first = params.raw0 + row * params.row_bytes;
    u32* out = packed + params.packed0 + row * params.words;
    Counts own = {};
    // A row is a multiple of 64 samples.
    for (u32 unit = threadIdx.x; unit < params.words * 16 / SAMPLES; unit += WG) {
        u32 bytes[4] = {};
        u32 stored = params.row_bytes - min(params.row_bytes, 16 * unit);
        if (stored > 0) load_bytes(raw, first + 16 * unit, min(stored, 16u), bytes);
        pack(out, unit, bytes, params.samples - min(params.samples, SAMPLES * unit), own);
    }
    own = sum_block(own);
    // Counts are whole quads of words, so that counts0 is a multiple of 4.
    if (threadIdx.x == 0) ((uint4*)(counts + params.counts0))[row] = {own.ones, own.twos, own.missing, own.bad};
}
EXPORT(pack_genotypes)
