// Stored genotypes to codes of two bits, 0 to 2 and 3 for missing, with each row's counts of 1, 2, missing and bad.
// Grid: linear, one workgroup per row.
// Bindings: 0 raw (rows, row_bytes) bytes read; 1 packed (rows, words) write; 2 counts (rows, 4) write; 3 params.
// Constants: WG; CODING 0 one allele, 1 two alleles, 2 dosages, 3 PLINK counting A1, 4 PLINK counting A2, 5 codes.

struct Params {
    rows: u32,
    samples: u32,
    row_bytes: u32,
    words: u32,
    raw0: u32,
    packed0: u32,
    counts0: u32,
}

@group(0) @binding(0) var<storage, read> raw: array<u32>;
@group(0) @binding(1) var<storage, read_write> packed: array<u32>;
@group(0) @binding(2) var<storage, read_write> counts: array<u32>;
@group(0) @binding(3) var<uniform> params: Params;

const WG: u32 = 64u;
const CODING: u32 = 0u;

// A code that is bad: missing, and a bit beside it.
const BAD: u32 = 7u;
// The lower bit of each code.
const LOWER: u32 = 0x55555555u;

// Each invocation's counts of 1, 2, missing and bad.
var<workgroup> partial: array<vec4<u32>, WG>;

// Four bytes of a row from byte i of `raw` on, which need not be aligned. Of the words that hold them none past the one
// that holds byte `last`, the row's last, is read: what stands for bytes after it is not used.
fn four_bytes(i: u32, last: u32) -> u32 {
    let word = i >> 2u;
    let shift = (i & 3u) * 8u;
    let low = raw[min(word, last >> 2u)] >> shift;
    if shift == 0u {
        return low;
    }
    return low | (raw[min(word + 1u, last >> 2u)] << (32u - shift));
}

// Byte i of a word, signed.
fn signed_byte(word: u32, i: u32) -> i32 {
    return bitcast<i32>(word << (24u - 8u * i)) >> 24u;
}

fn haploid(allele: i32) -> u32 {
    if allele < 0 {
        return select(3u, BAD, allele < -2);
    }
    return select(0u, 1u, allele > 0);
}

fn diploid(a: i32, b: i32) -> u32 {
    let lowest = min(a, b);
    let highest = max(a, b);
    if lowest < -2 {
        return BAD;
    }
    if lowest == -1 || highest < 0 {
        return 3u;
    }
    // One allele only.
    if lowest == -2 {
        return select(0u, 2u, highest > 0);
    }
    return select(0u, 1u, a > 0) + select(0u, 1u, b > 0);
}

fn dosage(value: i32) -> u32 {
    if value >= 0 && value <= 2 {
        return bitcast<u32>(value);
    }
    return select(BAD, 3u, value == -1);
}

// The codes of 16 samples as a word, and how many of them are bad. `first`: their first byte.
fn stored(first: u32, last: u32, samples: u32) -> vec2<u32> {
    if CODING >= 3u {
        let bits = four_bytes(first, last);
        if CODING == 5u {
            return vec2(bits, 0u);
        }
        let upper = (bits >> 1u) & LOWER;
        let lower = bits & LOWER;
        // PLINK's 0, 1, 2, 3 are two first alleles, missing, one of each, two second alleles.
        if CODING == 3u {
            return vec2(((upper ^ LOWER) << 1u) | (upper ^ lower), 0u);
        }
        return vec2((lower << 1u) | (upper ^ lower), 0u);
    }
    var codes = 0u;
    var bad = 0u;
    // Each word holds four samples, or two that are diploid.
    const EACH: u32 = select(4u, 2u, CODING == 1u);
    for (var i = 0u; i < samples; i += EACH) {
        let word = four_bytes(first + i * (4u / EACH), last);
        for (var j = 0u; j < EACH && i + j < samples; j++) {
            var code: u32;
            if CODING == 0u {
                code = haploid(signed_byte(word, j));
            } else if CODING == 1u {
                code = diploid(signed_byte(word, 2u * j), signed_byte(word, 2u * j + 1u));
            } else {
                code = dosage(signed_byte(word, j));
            }
            codes |= (code & 3u) << (2u * (i + j));
            bad += code >> 2u;
        }
    }
    return vec2(codes, bad);
}

@compute @workgroup_size(WG)
fn pack_genotypes(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = linear_group(group, groups);
    if row >= params.rows {
        return;
    }
    let start = params.raw0 + row * params.row_bytes;
    let last = start + params.row_bytes - 1u;
    // Bytes of 16 samples.
    const STEP: u32 = select(select(16u, 32u, CODING == 1u), 4u, CODING >= 3u);
    var sums = vec4<u32>();
    for (var word = lane; word < params.words; word += WG) {
        var codes = 0u;
        if 16u * word < params.samples {
            let samples = min(params.samples - 16u * word, 16u);
            let found = stored(start + STEP * word, last, samples);
            codes = found.x & (0xffffffffu >> (32u - 2u * samples));
            let upper = (codes >> 1u) & LOWER;
            let lower = codes & LOWER;
            sums += vec4(
                countOneBits(lower & ~upper),
                countOneBits(upper & ~lower),
                countOneBits(upper & lower),
                found.y,
            );
        }
        packed[params.packed0 + row * params.words + word] = codes;
    }
    partial[lane] = sums;
    for (var half = WG / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if lane < half {
            partial[lane] += partial[lane + half];
        }
    }
    if lane == 0u {
        let i = params.counts0 + 4u * row;
        counts[i] = partial[0].x;
        counts[i + 1u] = partial[0].y;
        counts[i + 2u] = partial[0].z;
        counts[i + 3u] = partial[0].w;
    }
}
