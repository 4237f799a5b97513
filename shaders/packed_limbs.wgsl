// Replaces packed codes by limbs from a table: byte r of out[i, limb] is the limb for code 4 i + r of a column.
// Grid: linear, one invocation per four rows of a column.
// Bindings: 0 packed (rows, words) read; 1 table (rows, SETS LIMBS) of four limbs read; 2 out (rows / 4, SETS row limbs) write; 3 params.
// Constants: WG; SETS of numbers and LIMBS of each, SETS LIMBS words of the table.

@group(0) @binding(0) var<storage, read> packed: array<u32>;
@group(0) @binding(1) var<storage, read> table: array<u32>;
@group(0) @binding(2) var<storage, read_write> out: array<u32>;
@group(0) @binding(3) var<uniform> params: Params;

const WG: u32 = 256u;
const SETS: u32 = 1u;
const LIMBS: u32 = 3u;

const ENTRIES: u32 = SETS * LIMBS;

@compute @workgroup_size(WG)
fn packed_limbs(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let item = linear_group(group, groups) * WG + lane;
    let four = item / params.columns;
    let first = 4u * four;
    if first >= params.rows {
        return;
    }
    let column = item - four * params.columns;
    var words: array<u32, ENTRIES>;
    for (var r = 0u; r < min(4u, params.rows - first); r++) {
        let row = first + r;
        let word = packed[params.packed0 + row * params.words + params.word0 + column / 16u];
        let shift = 8u * ((word >> (2u * (column % 16u))) & 3u);
        for (var t = 0u; t < ENTRIES; t++) {
            let limb = (table[params.table0 + row * ENTRIES + t] >> shift) & 0xffu;
            words[t] |= limb << (8u * r);
        }
    }
    for (var of_set = 0u; of_set < SETS; of_set++) {
        let start = params.out0 + (four * SETS + of_set) * params.row_limbs;
        for (var t = 0u; t < LIMBS; t++) {
            out[start + t * params.columns + column] = words[of_set * LIMBS + t];
        }
        // Clears the padding of a row of limbs to whole tiles.
        for (var pad = LIMBS * params.columns + column; pad < params.row_limbs; pad += params.columns) {
            out[start + pad] = 0u;
        }
    }
}
