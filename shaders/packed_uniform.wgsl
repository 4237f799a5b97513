// Random words to rows of 2-bit codes, in place: code j of word w is digit j + 1 after the point of w / 2^32 to the base 3, 0 from `columns` on.
// Grid: linear, one invocation per four words, which are of one row.
// Bindings: 0 packed (n / words, words) u32 read and write; 1 params { n, words, columns, packed0 }.
// Constants: WG.

@group(0) @binding(0) var<storage, read_write> packed: array<u32>;
@group(0) @binding(1) var<uniform> params: Params;

const WG: u32 = 256u;

fn codes(word: u32, count: u32) -> u32 {
    var rest = word;
    var digits = 0u;
    for (var j = 0u; j < min(count, 16u); j++) {
        // The constants are 2^32 / 3 and 2^33 / 3, rounded up.
        let digit = select(0u, 1u, rest >= 0x55555556u) + select(0u, 1u, rest >= 0xaaaaaaabu);
        digits |= digit << (2u * j);
        rest *= 3u;
    }
    return digits;
}

@compute @workgroup_size(WG)
fn packed_uniform(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let first = 4u * (linear_group(group, groups) * WG + lane);
    if first >= params.n {
        return;
    }
    for (var i = 0u; i < 4u; i++) {
        let column = 16u * (first % params.words + i);
        let at = params.packed0 + first + i;
        packed[at] = codes(packed[at], params.columns - min(params.columns, column));
    }
}
