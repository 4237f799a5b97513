// Matrix product: c[m, n] (+)= op(a)[m, k] op(b)[k, n] in f32, decoded as it is loaded.
// Grid: one workgroup of 256 per TILE x TILE block of c; x = blocks of columns, y = blocks of rows.
// Bindings: 0 a read; 1 b read; 2 c (rows of ldc) f32 read_write; 3 params, strides and starts in elements.
// Constants: TILE 64; TRANS_A a is (k, m); TRANS_B b is (n, k); A_TYPE, B_TYPE; LOWER leaves out blocks above the diagonal.

struct Params {
    m: u32,
    n: u32,
    k: u32,
    lda: u32,
    ldb: u32,
    ldc: u32,
    a0: u32,
    b0: u32,
    c0: u32,
    accumulate: u32,
    row0: u32,
    col0: u32,
}

@group(0) @binding(0) var<storage, read> a: array<u32>;
@group(0) @binding(1) var<storage, read> b: array<u32>;
@group(0) @binding(2) var<storage, read_write> c: array<f32>;
@group(0) @binding(3) var<uniform> params: Params;

const TILE: u32 = 64u;
const TRANS_A: u32 = 0u;
const TRANS_B: u32 = 0u;
const A_TYPE: u32 = 0u;
const B_TYPE: u32 = 0u;
const LOWER: u32 = 0u;

// Invocations along each side: each makes 4 x 4 elements of c.
const SIDE: u32 = TILE / 4u;
// Extent along k of what a workgroup holds at once: one vec4 of each operand per invocation.
const DEPTH: u32 = 16u;

// Slices of op(a) and op(b), [k][4 rows] and [k][4 columns]: 8 KiB together.
var<workgroup> a_slice: array<vec4<f32>, DEPTH * SIDE>;
var<workgroup> b_slice: array<vec4<f32>, DEPTH * SIDE>;

fn load_a(row: u32, depth: u32) -> f32 {
    if row >= params.m || depth >= params.k {
        return 0.0;
    }
    var i = params.a0;
    if TRANS_A == 1u {
        i += depth * params.lda + row;
    } else {
        i += row * params.lda + depth;
    }
    return decode(a[word_of(i, A_TYPE)], i, A_TYPE);
}

fn load_b(depth: u32, col: u32) -> f32 {
    if col >= params.n || depth >= params.k {
        return 0.0;
    }
    var i = params.b0;
    if TRANS_B == 1u {
        i += col * params.ldb + depth;
    } else {
        i += depth * params.ldb + col;
    }
    return decode(b[word_of(i, B_TYPE)], i, B_TYPE);
}

// Where an invocation of a slice loads: neighbours along the direction in which the operand is contiguous. A vec4 is
// stored whole, since a store to one component may touch the others.
fn slice_place(lane: u32, along_k: bool) -> vec2<u32> {
    if along_k {
        return vec2(lane % DEPTH, lane / DEPTH);
    }
    return vec2(lane / SIDE, lane % SIDE);
}

fn store(row: u32, col: u32, values: vec4<f32>) {
    if row >= params.m {
        return;
    }
    for (var j = 0u; j < 4u && col + j < params.n; j++) {
        let i = params.c0 + row * params.ldc + col + j;
        if params.accumulate == 1u {
            c[i] += values[j];
        } else {
            c[i] = values[j];
        }
    }
}

@compute @workgroup_size(SIDE * SIDE)
fn matmul(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let first_row = group.y * TILE;
    let first_col = group.x * TILE;
    if LOWER == 1u && params.row0 + first_row + TILE <= params.col0 + first_col {
        return;
    }
    let a_place = slice_place(lane, TRANS_A == 0u);
    let b_place = slice_place(lane, TRANS_B == 1u);
    let a_row = first_row + 4u * a_place.y;
    let b_col = first_col + 4u * b_place.y;
    let row = lane / SIDE;
    let col = lane % SIDE;
    var sum0 = vec4<f32>();
    var sum1 = vec4<f32>();
    var sum2 = vec4<f32>();
    var sum3 = vec4<f32>();
    for (var k0 = 0u; k0 < params.k; k0 += DEPTH) {
        let ak = k0 + a_place.x;
        let bk = k0 + b_place.x;
        a_slice[a_place.x * SIDE + a_place.y] =
            vec4(load_a(a_row, ak), load_a(a_row + 1u, ak), load_a(a_row + 2u, ak), load_a(a_row + 3u, ak));
        b_slice[b_place.x * SIDE + b_place.y] =
            vec4(load_b(bk, b_col), load_b(bk, b_col + 1u), load_b(bk, b_col + 2u), load_b(bk, b_col + 3u));
        workgroupBarrier();
        for (var depth = 0u; depth < DEPTH; depth++) {
            let x = a_slice[depth * SIDE + row];
            let y = b_slice[depth * SIDE + col];
            sum0 += x.x * y;
            sum1 += x.y * y;
            sum2 += x.z * y;
            sum3 += x.w * y;
        }
        workgroupBarrier();
    }
    let c_row = first_row + 4u * row;
    let c_col = first_col + 4u * col;
    store(c_row, c_col, sum0);
    store(c_row + 1u, c_col, sum1);
    store(c_row + 2u, c_col, sum2);
    store(c_row + 3u, c_col, sum3);
}
