// The transpose: out[j, i] = x[i, j], of elements of four or eight bytes.
// Grid: tiles of 4 LINES, y along the m rows of x, x along its n columns; one workgroup per tile.
// Bindings: 0 x (m, ldx) read; 1 out (n, ldo) written; 2 params.
// Constants: LINES rows that are read at once; WORDS of four bytes in an element.

@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> out: array<u32>;
@group(0) @binding(2) var<uniform> params: Params;

const LINES: u32 = 8u;
const WORDS: u32 = 1u;
const TILE: u32 = 4u * LINES;
// One more than the length of a row, so that the elements of a column are in different banks.
const STRIDE: u32 = TILE + 1u;

var<workgroup> tile: array<u32, TILE * STRIDE * WORDS>;

@compute @workgroup_size(TILE * LINES)
fn transpose(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let first_row = group.y * TILE;
    let first_col = group.x * TILE;
    let along = lane % TILE;
    for (var i = lane / TILE; i < TILE; i += LINES) {
        let row = first_row + i;
        let col = first_col + along;
        if row < params.m && col < params.n {
            for (var word = 0u; word < WORDS; word++) {
                tile[(i * STRIDE + along) * WORDS + word] = x[(params.x0 + row * params.ldx + col) * WORDS + word];
            }
        }
    }
    workgroupBarrier();
    for (var i = lane / TILE; i < TILE; i += LINES) {
        let row = first_row + along;
        let col = first_col + i;
        if row < params.m && col < params.n {
            for (var word = 0u; word < WORDS; word++) {
                out[(params.out0 + col * params.ldo + row) * WORDS + word] = tile[(along * STRIDE + i) * WORDS + word];
            }
        }
    }
}
