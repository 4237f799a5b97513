// Total variation denoising. With d = sum over axes of p[i - 1] - p[i], and g the differences of factor f + d to the next elements: a step q = (p - tau g) / (1 + tau |g|), or the result q = scale f + weight d.
// Grid: linear, one workgroup per WG elements of a row; groups of elements are counted from the column ox on.
// Bindings: 0 f read; 1 p (axes, z, y, x) read; 2 q written: (axes, z, y, x), or the result; 3 energies (z, y, groups) written: sums of d d + |g| over groups; 4 params.
// Constants: WG; RESULT 1 for the result, 0 for a step; WIDE 0, since WGSL has no f64.

@group(0) @binding(0) var<storage, read> f: array<f32>;
@group(0) @binding(1) var<storage, read> p: array<f32>;
@group(0) @binding(2) var<storage, read_write> q: array<f32>;
@group(0) @binding(3) var<storage, read_write> energies: array<f32>;
@group(0) @binding(4) var<uniform> params: Params;

const WG: u32 = 256u;
const RESULT: u32 = 0u;
const WIDE: u32 = 0u;

var<workgroup> sums: array<f32, WG>;

// Returns the image's element at coordinates along z, y and x.
fn image_at(at: vec3<u32>) -> f32 {
    return f[params.f0 + at.x * params.fz + at.y * params.fy + at.z * params.fx];
}

fn divergence_at(at: vec3<u32>) -> f32 {
    let row = params.nx;
    let plane = params.ny * row;
    let size = params.nz * plane;
    var i = at.x * plane + at.y * row + at.z;
    var sum = 0.0;
    if params.axes > 2u {
        if at.x > 0u {
            sum += p[i - plane] - p[i];
        } else {
            sum -= p[i];
        }
        i += size;
    }
    if params.axes > 1u {
        if at.y > 0u {
            sum += p[i - row] - p[i];
        } else {
            sum -= p[i];
        }
        i += size;
    }
    if at.z > 0u {
        return sum + (p[i - 1u] - p[i]);
    }
    return sum - p[i];
}

@compute @workgroup_size(WG)
fn denoise_tv(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let block = linear_group(workgroup, workgroups);
    let row = params.row0 + block / params.groups;
    let group = block % params.groups;
    let in_grid = block / params.groups < params.rows;
    let column = group * WG + lane;
    if RESULT == 1u {
        if in_grid && column < params.mx {
            let z = row / params.my;
            let y = row % params.my;
            let at = vec3(z + params.oz, y + params.oy, column + params.ox);
            q[params.q0 + z * params.qz + y * params.qy + column * params.qx] =
                params.scale * image_at(at) + params.weight * divergence_at(at);
        }
        return;
    }
    // The first group ends at the column ox, or at a multiple of WG elements before it.
    let before = (params.ox + WG - 1u) / WG * WG - params.ox;
    var energy = 0.0;
    if in_grid && column >= before && column - before < params.nx {
        let at = vec3(row / params.ny, row % params.ny, column - before);
        let value = image_at(at);
        let divergence = divergence_at(at);
        var g = vec3(0.0);
        if at.z + 1u < params.nx {
            let next = at + vec3(0u, 0u, 1u);
            g.z = params.factor * (image_at(next) - value) + (divergence_at(next) - divergence);
        }
        if params.axes > 1u && at.y + 1u < params.ny {
            let next = at + vec3(0u, 1u, 0u);
            g.y = params.factor * (image_at(next) - value) + (divergence_at(next) - divergence);
        }
        if params.axes > 2u && at.x + 1u < params.nz {
            let next = at + vec3(1u, 0u, 0u);
            g.x = params.factor * (image_at(next) - value) + (divergence_at(next) - divergence);
        }
        let tau = 1.0 / f32(2u * params.axes);
        let length = sqrt(g.z * g.z + g.y * g.y + g.x * g.x);
        let divisor = 1.0 + tau * length;
        energy = divergence * divergence + length;
        let size = params.nz * params.ny * params.nx;
        var i = row * params.nx + at.z;
        for (var axis = 3u - params.axes; axis < 3u; axis++) {
            q[i] = (p[i] - tau * g[axis]) / divisor;
            i += size;
        }
    }
    if params.energies == 0u {
        return;
    }
    sums[lane] = energy;
    workgroupBarrier();
    for (var half = WG / 2u; half > 0u; half /= 2u) {
        if lane < half {
            sums[lane] += sums[lane + half];
        }
        workgroupBarrier();
    }
    if in_grid && lane == 0u {
        energies[row * params.groups + group] = sums[0];
    }
}
