// Replaces codes of two bits by a table, and counts each new code of a row.
// Grid: linear, one workgroup per row.
// Bindings: 0 raw (rows, row_bytes) bytes read; 1 packed (rows, words) write; 2 counts (rows, 4) write; 3 params, table: for code i at bit 2 i.
// Constants: WG.

@group(0) @binding(0) var<storage, read> raw: array<u32>;
@group(0) @binding(1) var<storage, read_write> packed: array<u32>;
@group(0) @binding(2) var<storage, read_write> counts: array<u32>;
@group(0) @binding(3) var<uniform> params: Params;

const WG: u32 = 64u;

// The lower bit of each code.
const LOWER: u32 = 0x55555555u;

// The counts of codes 1, 2 and 3 of each invocation.
var<workgroup> partial: array<vec3<u32>, WG>;

// Returns four bytes of a row from byte i of `raw` on, which need not be aligned. No word after the one that holds byte `last`, the row's
// last byte, is read; bytes after `last` are arbitrary.
fn four_bytes(i: u32, last: u32) -> u32 {
    let word = i >> 2u;
    let shift = (i & 3u) * 8u;
    let low = raw[min(word, last >> 2u)] >> shift;
    if shift == 0u {
        return low;
    }
    return low | (raw[min(word + 1u, last >> 2u)] << (32u - shift));
}

// Returns one bit of each of 16 new codes; `low` and `high` are the bits of the old codes. `table` has that bit of the new code for code i
// at bit 2 i.
fn plane(low: u32, high: u32, table: u32) -> u32 {
    let a = 0u - (table & 1u);
    let b = 0u - ((table >> 2u) & 1u);
    let c = 0u - ((table >> 4u) & 1u);
    let d = 0u - ((table >> 6u) & 1u);
    return (a ^ ((a ^ b) & low) ^ ((a ^ c) & high) ^ ((a ^ b ^ c ^ d) & low & high)) & LOWER;
}

fn recoded(codes: u32) -> u32 {
    let low = codes & LOWER;
    let high = (codes >> 1u) & LOWER;
    return plane(low, high, params.table) | (plane(low, high, params.table >> 1u) << 1u);
}

@compute @workgroup_size(WG)
fn recode(
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
    var sums = vec3<u32>();
    for (var word = lane; word < params.words; word += WG) {
        var codes = 0u;
        if 16u * word < params.cols {
            let cols = min(params.cols - 16u * word, 16u);
            codes = recoded(four_bytes(start + 4u * word, last)) & (0xffffffffu >> (32u - 2u * cols));
            let upper = (codes >> 1u) & LOWER;
            let lower = codes & LOWER;
            sums += vec3(
                countOneBits(lower & ~upper),
                countOneBits(upper & ~lower),
                countOneBits(upper & lower),
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
        let found = partial[0];
        counts[i] = params.cols - found.x - found.y - found.z;
        counts[i + 1u] = found.x;
        counts[i + 2u] = found.y;
        counts[i + 3u] = found.z;
    }
}
