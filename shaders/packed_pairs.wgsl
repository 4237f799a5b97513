// Adds each row's products of two entries whose codes are not 0: sums[entry, column] += 64-bit integers.
// Grid: linear, one invocation per word of a row.
// Bindings: 0 packed (rows, words) read; 1 table (rows, 4) of two codes 1, a 1 and a missing code, two missing codes, and a shift read; 2 sums (entries, columns, 2) u32 read and written; 3 params.
// Constants: WG.

@group(0) @binding(0) var<storage, read> packed: array<u32>;
@group(0) @binding(1) var<storage, read> table: array<u32>;
@group(0) @binding(2) var<storage, read_write> sums: array<atomic<u32>>;
@group(0) @binding(3) var<uniform> params: Params;

const WG: u32 = 256u;

// Returns the product of two codes, neither of which is 0.
fn product(a: u32, b: u32, terms: u32) -> u32 {
    if a == 3u && b == 3u {
        return table[terms + 2u];
    }
    if a == 3u || b == 3u {
        return min(a, b) * table[terms + 1u];
    }
    return a * b * table[terms];
}

// Adds in 64 bits. In whatever order invocations add, exactly one of them sees each carry out of the low word.
fn add(i: u32, value: u32, shift: u32) {
    let low = value << shift;
    let before = atomicAdd(&sums[i], low);
    // The shift is in two steps, since a shift by 32 would do nothing.
    let carried = ((value >> 1u) >> (31u - shift)) + select(0u, 1u, before + low < before);
    if carried != 0u {
        atomicAdd(&sums[i + 1u], carried);
    }
}

@compute @workgroup_size(WG)
fn packed_pairs(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let item = linear_group(group, groups) * WG + lane;
    let row = item / params.word_count;
    if row >= params.rows {
        return;
    }
    let at = item - row * params.word_count;
    let start = params.packed0 + row * params.words;
    let terms = params.table0 + 4u * row;
    for (var word = packed[start + params.word0 + at]; word != 0u;) {
        let place = countTrailingZeros(word) & ~1u;
        let code = (word >> place) & 3u;
        word &= ~(3u << place);
        let sums_of = params.sums0 + 2u * (16u * at + place / 2u) * params.columns;
        for (var first = 0u; first < params.columns; first += 16u) {
            for (var other = packed[start + params.column_word + first / 16u]; other != 0u;) {
                let column = countTrailingZeros(other) & ~1u;
                let value = product(code, (other >> column) & 3u, terms);
                other &= ~(3u << column);
                add(sums_of + 2u * first + column, value, table[terms + 3u]);
            }
        }
    }
}
