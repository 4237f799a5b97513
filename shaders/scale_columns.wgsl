// Columns times numbers: out[i, j] = x[i, j] s[j].
// Grid: linear, one workgroup per WG elements.
// Bindings: 0 x (rows, cols) f32 read; 1 s (cols) f32 read; 2 out f32 write; 3 params, starts in elements.
// Constants: WG.

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> s: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@group(0) @binding(3) var<uniform> params: Params;

const WG: u32 = 256u;

@compute @workgroup_size(WG)
fn scale_columns(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let item = linear_group(group, groups) * WG + lane;
    if item >= params.rows * params.cols {
        return;
    }
    out[params.out0 + item] = x[params.x0 + item] * s[item % params.cols];
}
