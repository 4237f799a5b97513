// Packed rows in another order: row i of out, which may be wider, is row order[i] of packed. The low 24 bits of order[i] are the index, and the next eight are the codes that replace 0 to 3.
// Grid: linear, one invocation per word.
// Bindings: 0 packed (.., words) read; 1 order (rows) read; 2 out (rows, stride) write; 3 params.
// Constants: WG.

@group(0) @binding(0) var<storage, read> packed: array<u32>;
@group(0) @binding(1) var<storage, read> order: array<u32>;
@group(0) @binding(2) var<storage, read_write> out: array<u32>;
@group(0) @binding(3) var<uniform> params: Params;

const WG: u32 = 256u;

const ROWS: u32 = 0x01000000u;
const EACH: u32 = 0x55555555u;

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
    let word = packed[params.packed0 + (place % ROWS) * params.words + at];
    // Each bit of the new code is a polynomial of the two bits of the old one.
    let zero = (place >> 24u) & 3u;
    let one = (place >> 26u) & 3u;
    let two = (place >> 28u) & 3u;
    let three = place >> 30u;
    let lows = (word & EACH) * 3u;
    let highs = ((word >> 1u) & EACH) * 3u;
    var codes = (((zero ^ one) * EACH) & lows) ^ (((zero ^ two) * EACH) & highs);
    codes ^= ((zero ^ one ^ two ^ three) * EACH) & lows & highs;
    // The padding of the row stays 0.
    if 16u * at < params.entries {
        let used = min(16u, params.entries - 16u * at);
        codes ^= zero * (EACH >> (2u * (16u - used)));
    }
    out[params.out0 + row * params.stride + at] = codes;
}
