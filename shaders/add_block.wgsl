// Sums of blocks: sums[i, j] += block[i, j]. A sum is the words of an f64, or the f32 next to it and what that leaves.
// Grid: linear, one workgroup per WG elements.
// Bindings: 0 block (rows, cols) f32 read; 1 the first and 2 the second numbers of the sums, read and written; 3 params.
// Constants: WG.

struct Params {
    rows: u32,
    cols: u32,
    block0: u32,
    sums0: u32,
    lower: u32,
    row0: u32,
    zero: u32,
}

@group(0) @binding(0) var<storage, read> block: array<f32>;
@group(0) @binding(1) var<storage, read_write> nearest: array<f32>;
@group(0) @binding(2) var<storage, read_write> rests: array<f32>;
@group(0) @binding(3) var<uniform> params: Params;

const WG: u32 = 256u;

// A number of which the compiler does not know how it was made, so that it takes nothing of it together with what follows.
fn opaque(value: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(value) ^ params.zero);
}

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
    let value = block[params.block0 + item];
    // Knuth's two-sum; what is left stays below half a unit of the sum. Of infinite sums nothing is.
    let sum = nearest[i];
    let total = opaque(sum + value);
    let part = opaque(total - sum);
    let rest = rests[i] + opaque(opaque(sum - opaque(total - part)) + opaque(value - part));
    let all = opaque(total + rest);
    let is_finite = is_finite_bits(bitcast<u32>(total));
    nearest[i] = select(total, all, is_finite);
    rests[i] = select(0.0, rest - opaque(all - total), is_finite);
}
