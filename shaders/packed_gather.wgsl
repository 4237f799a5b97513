// Packed rows in another order: row i of out is row order[i] of packed; its highest bit swaps codes 0 and 2, the next tells the missing.
// Grid: linear, one invocation per word.
// Bindings: 0 packed (.., words) read; 1 order (rows) read; 2 out (rows, words) write; 3 params.
// Constants: WG.

struct Params {
    rows: u32,
    words: u32,
    entries: u32,
    packed0: u32,
    order0: u32,
    out0: u32,
}

@group(0) @binding(0) var<storage, read> packed: array<u32>;
@group(0) @binding(1) var<storage, read> order: array<u32>;
@group(0) @binding(2) var<storage, read_write> out: array<u32>;
@group(0) @binding(3) var<uniform> params: Params;

const WG: u32 = 256u;

const SWAPPED: u32 = 0x80000000u;
const MISSING: u32 = 0x40000000u;

@compute @workgroup_size(WG)
fn packed_gather(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let item = linear_group(group, groups) * WG + lane;
    let row = item / params.words;
    if row >= params.rows {
        return;
    }
    let place = order[params.order0 + row];
    let at = item - row * params.words;
    var word = packed[params.packed0 + (place & ~(SWAPPED | MISSING)) * params.words + at];
    if (place & MISSING) != 0u {
        word &= (word >> 1u) & 0x55555555u;
    }
    // What pads the row stays 0.
    if (place & SWAPPED) != 0u && 16u * at < params.entries {
        let used = min(16u, params.entries - 16u * at);
        word ^= (~word & (0x55555555u >> (2u * (16u - used)))) << 1u;
    }
    out[params.out0 + item] = word;
}
