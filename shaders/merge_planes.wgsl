// A plane of low bits and one of high bits to 2-bit codes, the first in the lowest bits; rows of codes end with zeros.
// Grid: linear, one workgroup per WG words of the window of codes.
// Bindings: 0 low (rows, planes_stride) read; 1 high read; 2 codes (rows, codes_stride) read, write; 3 params.
// Constants: WG.

struct Params {
    rows: u32,
    cols: u32,
    codes_stride: u32,
    planes_stride: u32,
    codes0: u32,
    planes0: u32,
}

@group(0) @binding(0) var<storage, read> low: array<u32>;
@group(0) @binding(1) var<storage, read> high: array<u32>;
@group(0) @binding(2) var<storage, read_write> codes: array<u32>;
@group(0) @binding(3) var<uniform> params: Params;

const WG: u32 = 256u;

// Four bits as bits 0, 2, 4 and 6.
fn apart(bits: u32) -> u32 {
    var byte = bits & 15u;
    byte = (byte | (byte << 2u)) & 0x33u;
    return (byte | (byte << 1u)) & 0x55u;
}

@compute @workgroup_size(WG)
fn merge_planes(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let end = params.codes0 + params.rows * params.codes_stride;
    let place = linear_group(group, groups) * WG + lane;
    let first = 4u * place;
    if place > (end - 1u) / 4u || first + 4u <= params.codes0 {
        return;
    }
    let start = max(first, params.codes0);
    var row = (start - params.codes0) / params.codes_stride;
    var column = (start - params.codes0) % params.codes_stride;
    var word = 0u;
    var written = 0u;
    for (var i = start; i < min(first + 4u, end); i++) {
        let shift = 8u * (i - first);
        written |= 0xffu << shift;
        if column < (params.cols + 3u) / 4u {
            let count = min(4u, params.cols - 4u * column);
            let at = params.planes0 + row * params.planes_stride + column / 2u;
            let bit = 8u * (at & 3u) + 4u * (column & 1u);
            let byte = apart(low[at >> 2u] >> bit) | (apart(high[at >> 2u] >> bit) << 1u);
            word |= (byte & (0xffu >> (8u - 2u * count))) << shift;
        }
        column++;
        if column == params.codes_stride {
            column = 0u;
            row++;
        }
    }
    if written != 0xffffffffu {
        word |= codes[place] & ~written;
    }
    codes[place] = word;
}
