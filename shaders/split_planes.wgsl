// 2-bit codes to a plane of their low bits and one of their high bits, the first in the lowest bits; rows of planes end with zeros.
// Grid: linear, one workgroup per WG words of the window of a plane.
// Bindings: 0 codes (rows, codes_stride) read; 1 low (rows, planes_stride) read, write; 2 high read, write; 3 params.
// Constants: WG.

struct Params {
    rows: u32,
    cols: u32,
    codes_stride: u32,
    planes_stride: u32,
    codes0: u32,
    planes0: u32,
}

@group(0) @binding(0) var<storage, read> codes: array<u32>;
@group(0) @binding(1) var<storage, read_write> low: array<u32>;
@group(0) @binding(2) var<storage, read_write> high: array<u32>;
@group(0) @binding(3) var<uniform> params: Params;

const WG: u32 = 256u;

fn byte(at: u32) -> u32 {
    return (codes[at >> 2u] >> (8u * (at & 3u))) & 0xffu;
}

// Bits 0, 2, 4, .. of two bytes.
fn evens(codes: u32) -> u32 {
    var word = codes & 0x5555u;
    word = (word | (word >> 1u)) & 0x3333u;
    word = (word | (word >> 2u)) & 0x0f0fu;
    return (word | (word >> 4u)) & 0xffu;
}

@compute @workgroup_size(WG)
fn split_planes(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let end = params.planes0 + params.rows * params.planes_stride;
    let place = linear_group(group, groups) * WG + lane;
    let first = 4u * place;
    if place > (end - 1u) / 4u || first + 4u <= params.planes0 {
        return;
    }
    let start = max(first, params.planes0);
    var row = (start - params.planes0) / params.planes_stride;
    var column = (start - params.planes0) % params.planes_stride;
    var lows = 0u;
    var highs = 0u;
    var written = 0u;
    for (var i = start; i < min(first + 4u, end); i++) {
        let shift = 8u * (i - first);
        written |= 0xffu << shift;
        if column < (params.cols + 7u) / 8u {
            let count = min(8u, params.cols - 8u * column);
            let at = params.codes0 + row * params.codes_stride + 2u * column;
            var eight = byte(at);
            if count > 4u {
                eight |= byte(at + 1u) << 8u;
            }
            let used = 0xffu >> (8u - count);
            lows |= (evens(eight) & used) << shift;
            highs |= (evens(eight >> 1u) & used) << shift;
        }
        column++;
        if column == params.planes_stride {
            column = 0u;
            row++;
        }
    }
    if written != 0xffffffffu {
        lows |= low[place] & ~written;
        highs |= high[place] & ~written;
    }
    low[place] = lows;
    high[place] = highs;
}
