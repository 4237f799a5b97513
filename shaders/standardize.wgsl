// Rows centred and scaled: out[i, j] = (x[i, j] - shift) scale, or fill if x is NaN, or if it is negative and negative is missing. The table has each row's shift, scale and fill.
// Grid: linear, one workgroup per WG elements.
// Bindings: 0 x (rows, cols) read; 1 table (rows, 3) of shift, scale, fill, f32 read; 2 out f32 write; 3 params.
// Constants: WG; NARROW x is of the type in params, else f32.

@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read> table: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@group(0) @binding(3) var<uniform> params: Params;

const WG: u32 = 256u;
const NARROW: u32 = 0u;

@compute @workgroup_size(WG)
fn standardize(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let item = linear_group(group, groups) * WG + lane;
    if item >= params.rows * params.cols {
        return;
    }
    let i = params.x0 + item;
    let dtype = select(DTYPE_F32, params.x_type, NARROW == 1u);
    let bits = decode_bits(x[word_of(i, dtype)], x[high_word_of(i, dtype)], i, dtype);
    let row = params.table0 + 3u * (item / params.cols);
    // Numbers below zero, but not -0.0; and NaN of either sign.
    let missing_above = select(0xffffffffu, 0x80000000u, params.negative_is_missing == 1u);
    if bits > missing_above || (bits & 0x7fffffffu) > 0x7f800000u {
        out[params.out0 + item] = table[row + 2u];
    } else {
        out[params.out0 + item] = (bitcast<f32>(bits) - table[row]) * table[row + 1u];
    }
}
