// Sums of blocks: sums[i, j] += block[i, j]. A sum is an f64, or two f32: the nearest f32, and the remainder.
// Grid: linear, one workgroup per WG elements.
// Bindings: 0 block (rows, cols) f32 read; 1 sums, of two f32 or an f64 each, read and written; 2 params, starts in elements and sums.
// Constants: WG.

@group(0) @binding(0) var<storage, read> block: array<f32>;
@group(0) @binding(1) var<storage, read_write> sums: array<vec2<f32>>;
@group(0) @binding(2) var<uniform> params: Params;

const WG: u32 = 256u;

@compute @workgroup_size(WG)
fn add_block(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let item = linear_group(group, groups) * WG + lane;
    if item >= params.rows * params.cols {
        return;
    }
    let row = item / params.cols;
    if params.lower == 1u && item - row * params.cols > params.row0 + row {
        return;
    }
    let i = params.sums0 + item;
    sums[i] = two_sum(sums[i], block[params.block0 + item], params.zero);
}
