// Sums of blocks: sums[i, j] += block[i, j] for each block in order. A sum is an f64, or two f32: the nearest f32, and the remainder.
// Grid: linear, one workgroup per WG elements.
// Bindings: 0 blocks (rows, cols) of f32 read; 1 sums, of two f32 or an f64 each, read and written; 2 params, starts in elements and sums.
// Constants: WG.

@group(0) @binding(0) var<storage, read> blocks: array<f32>;
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
    var sum = sums[i];
    for (var block = 0u; block < params.blocks; block++) {
        sum = two_sum(sum, blocks[params.block0 + block * params.step + item], params.zero);
    }
    sums[i] = sum;
}
