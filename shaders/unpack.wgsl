// Values of BITS bits, the first in the lowest bits of a byte, to elements of BYTES bytes: out[i, j] = table[value j of row i].
// Grid: linear, one workgroup per WG words of the window of out.
// Bindings: 0 packed (rows, stride) read; 1 table (16) of elements' bits read; 2 out (rows, cols) read, write; 3 params, starts in elements.
// Constants: WG; BITS 1, 2 or 4; BYTES 1, 2 or 4.

@group(0) @binding(0) var<storage, read> packed: array<u32>;
@group(0) @binding(1) var<storage, read> table: array<u32>;
@group(0) @binding(2) var<storage, read_write> out: array<u32>;
@group(0) @binding(3) var<uniform> params: Params;

const WG: u32 = 256u;
const BITS: u32 = 2u;
const BYTES: u32 = 4u;

const PER: u32 = 8u / BITS;
const MASK: u32 = (1u << BITS) - 1u;
// The number of elements of a word.
const EACH: u32 = 4u / BYTES;
const ELEMENT: u32 = 0xffffffffu >> (32u - 8u * BYTES);

@compute @workgroup_size(WG)
fn unpack(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let end = params.out0 + params.rows * params.cols;
    let place = linear_group(group, groups) * WG + lane;
    let first = EACH * place;
    if place > (end - 1u) / EACH || first + EACH <= params.out0 {
        return;
    }
    let start = max(first, params.out0);
    var row = (start - params.out0) / params.cols;
    var column = (start - params.out0) % params.cols;
    var word = 0u;
    var written = 0u;
    for (var i = start; i < min(first + EACH, end); i++) {
        let at = params.packed0 + row * params.stride + column / PER;
        let value = (packed[at >> 2u] >> (8u * (at & 3u) + BITS * (column % PER))) & MASK;
        let shift = 8u * BYTES * (i - first);
        word |= table[value] << shift;
        written |= ELEMENT << shift;
        column++;
        if column == params.cols {
            column = 0u;
            row++;
        }
    }
    if written != 0xffffffffu {
        word |= out[place] & ~written;
    }
    out[place] = word;
}
