// Packed codes to f32: out[i, j] = (code[i, j] - shift) scale, or fill where it is missing, by row of the table.
// Grid: linear, one invocation per four samples of a row.
// Bindings: 0 packed (rows, words) read; 1 table (rows, 3) of shift, scale, fill, f32 read; 2 out (rows, samples) f32 write; 3 params.
// Constants: WG.

struct Params {
    rows: u32,
    words: u32,
    samples: u32,
    packed0: u32,
    table0: u32,
    out0: u32,
}

@group(0) @binding(0) var<storage, read> packed: array<u32>;
@group(0) @binding(1) var<storage, read> table: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@group(0) @binding(3) var<uniform> params: Params;

const WG: u32 = 256u;

@compute @workgroup_size(WG)
fn packed_standardize(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let item = linear_group(group, groups) * WG + lane;
    let bytes = (params.samples + 3u) / 4u;
    let row = item / bytes;
    if row >= params.rows {
        return;
    }
    let byte = item - row * bytes;
    let codes = packed[params.packed0 + row * params.words + byte / 4u] >> (8u * (byte % 4u));
    let terms = params.table0 + 3u * row;
    let first = params.out0 + row * params.samples + 4u * byte;
    for (var j = 0u; j < min(4u, params.samples - 4u * byte); j++) {
        let code = (codes >> (2u * j)) & 3u;
        let value = (f32(code) - table[terms]) * table[terms + 1u];
        out[first + j] = select(value, table[terms + 2u], code == 3u);
    }
}
