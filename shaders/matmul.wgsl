// Matrix product: c[m, n] (+)= op(a)[m, k] op(b)[k, n] in f32, decoded as it is loaded.
// Grid: one workgroup per TILE x TILE block of c; x = blocks of columns, y = blocks of rows, z = products, of `depth` terms each.
// Bindings: 0 a read; 1 b read; 2 c (rows of ldc) f32 read_write; 3 params, strides and starts in elements.
// Constants: TILE 64; TRANS_A a is (k, m); TRANS_B b is (n, k); NARROW a and b are of the types in params, else both f32.

@group(0) @binding(0) var<storage, read> a: array<u32>;
@group(0) @binding(1) var<storage, read> b: array<u32>;
@group(0) @binding(2) var<storage, read_write> c: array<f32>;
@group(0) @binding(3) var<uniform> params: Params;

const TILE: u32 = 64u;
const TRANS_A: u32 = 0u;
const TRANS_B: u32 = 0u;
const NARROW: u32 = 0u;

// The number of invocations along each side. Each invocation computes 8 x 8 elements of c, as four blocks of 4 x 4 that are half a tile
// apart, so that neighbours read neighbouring vec4s: 4 vec4 loads for 64 products. (With 4 x 4 each, lavapipe takes 1.5 times as long;
// without shared memory, 10 times.)
const SIDE: u32 = TILE / 8u;
// The number of vec4s along each side of the tile.
const VECS: u32 = TILE / 4u;
// The extent along k of the slices that a workgroup holds at once.
const DEPTH: u32 = 16u;

// Slices of op(a) and op(b), [k][4 rows] and [k][4 columns]: 8 KiB together.
var<workgroup> a_slice: array<vec4<f32>, DEPTH * VECS>;
var<workgroup> b_slice: array<vec4<f32>, DEPTH * VECS>;

// The end of the terms of this workgroup's product, and the product's start in c.
var<private> end: u32;
var<private> c0: u32;

// Returns the indices of elements of a in four rows, or of b in four columns.
fn place_a(rows: vec4<u32>, depth: u32) -> vec4<u32> {
    if TRANS_A == 1u {
        return params.a0 + depth * params.lda + rows;
    }
    return params.a0 + rows * params.lda + depth;
}

fn place_b(depth: u32, cols: vec4<u32>) -> vec4<u32> {
    if TRANS_B == 1u {
        return params.b0 + cols * params.ldb + depth;
    }
    return params.b0 + depth * params.ldb + cols;
}

// Returns the words that hold an element; beyond the ends zeros, which are zero in any type.
fn words_a(row: u32, depth: u32, place: u32, dtype: u32) -> vec2<u32> {
    if row >= params.m || depth >= end {
        return vec2(0u);
    }
    return vec2(a[word_of(place, dtype)], a[high_word_of(place, dtype)]);
}

fn words_b(depth: u32, col: u32, place: u32, dtype: u32) -> vec2<u32> {
    if col >= params.n || depth >= end {
        return vec2(0u);
    }
    return vec2(b[word_of(place, dtype)], b[high_word_of(place, dtype)]);
}

fn load_a(rows: vec4<u32>, k: u32) -> vec4<f32> {
    let dtype = select(DTYPE_F32, params.a_type, NARROW == 1u);
    let at = place_a(rows, k);
    let x = words_a(rows.x, k, at.x, dtype);
    let y = words_a(rows.y, k, at.y, dtype);
    let z = words_a(rows.z, k, at.z, dtype);
    let w = words_a(rows.w, k, at.w, dtype);
    return decode_four(vec4(x.x, y.x, z.x, w.x), vec4(x.y, y.y, z.y, w.y), at, dtype);
}

fn load_b(k: u32, cols: vec4<u32>) -> vec4<f32> {
    let dtype = select(DTYPE_F32, params.b_type, NARROW == 1u);
    let at = place_b(k, cols);
    let x = words_b(k, cols.x, at.x, dtype);
    let y = words_b(k, cols.y, at.y, dtype);
    let z = words_b(k, cols.z, at.z, dtype);
    let w = words_b(k, cols.w, at.w, dtype);
    return decode_four(vec4(x.x, y.x, z.x, w.x), vec4(x.y, y.y, z.y, w.y), at, dtype);
}

// Returns the position of the i-th vec4 of a slice, as (depth, vec4 along the tile). Neighbours load along the direction in which the
// operand is contiguous.
fn slice_place(i: u32, along_k: bool) -> vec2<u32> {
    if along_k {
        return vec2(i % DEPTH, i / DEPTH);
    }
    return vec2(i / VECS, i % VECS);
}

// Each vec4 is stored whole, since a store to one component may change the others.
fn load_slices(first_row: u32, first_col: u32, k0: u32, lane: u32) {
    for (var i = lane; i < DEPTH * VECS; i += SIDE * SIDE) {
        let a_place = slice_place(i, TRANS_A == 0u);
        let k = k0 + a_place.x;
        let rows = first_row + 4u * a_place.y + vec4(0u, 1u, 2u, 3u);
        a_slice[a_place.x * VECS + a_place.y] = load_a(rows, k);
    }
    for (var i = lane; i < DEPTH * VECS; i += SIDE * SIDE) {
        let b_place = slice_place(i, TRANS_B == 1u);
        let k = k0 + b_place.x;
        let cols = first_col + 4u * b_place.y + vec4(0u, 1u, 2u, 3u);
        b_slice[b_place.x * VECS + b_place.y] = load_b(k, cols);
    }
}

fn store(row: u32, col: u32, values: vec4<f32>) {
    if row >= params.m {
        return;
    }
    for (var j = 0u; j < 4u && col + j < params.n; j++) {
        let i = c0 + row * params.ldc + col + j;
        if params.accumulate == 1u {
            c[i] += values[j];
        } else {
            c[i] = values[j];
        }
    }
}

fn store_row(row: u32, col: u32, left: vec4<f32>, right: vec4<f32>) {
    store(row, col, left);
    store(row, col + TILE / 2u, right);
}

@compute @workgroup_size(SIDE * SIDE)
fn matmul(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let first_row = group.y * TILE;
    let first_col = group.x * TILE;
    if params.lower == 1u && params.row0 + first_row + TILE <= params.col0 + first_col {
        return;
    }
    let row = lane / SIDE;
    let col = lane % SIDE;
    // The upper left, upper right, lower left and lower right block, each with its four rows.
    var sums: array<vec4<f32>, 16>;
    let first = group.z * params.depth;
    let last = min(params.k, first + params.depth);
    end = last;
    c0 = params.c0 + group.z * params.c_step;
    for (var k0 = first; k0 < last; k0 += DEPTH) {
        load_slices(first_row, first_col, k0, lane);
        workgroupBarrier();
        for (var depth = 0u; depth < DEPTH; depth++) {
            let upper = a_slice[depth * VECS + row];
            let lower = a_slice[depth * VECS + SIDE + row];
            let left = b_slice[depth * VECS + col];
            let right = b_slice[depth * VECS + SIDE + col];
            sums[0] += upper.x * left;
            sums[1] += upper.x * right;
            sums[2] += lower.x * left;
            sums[3] += lower.x * right;
            sums[4] += upper.y * left;
            sums[5] += upper.y * right;
            sums[6] += lower.y * left;
            sums[7] += lower.y * right;
            sums[8] += upper.z * left;
            sums[9] += upper.z * right;
            sums[10] += lower.z * left;
            sums[11] += lower.z * right;
            sums[12] += upper.w * left;
            sums[13] += upper.w * right;
            sums[14] += lower.w * left;
            sums[15] += lower.w * right;
        }
        workgroupBarrier();
    }
    let c_row = first_row + 4u * row;
    let c_col = first_col + 4u * col;
    // Indices are constant, which keeps the sums in registers.
    store_row(c_row, c_col, sums[0], sums[1]);
    store_row(c_row + TILE / 2u, c_col, sums[2], sums[3]);
    store_row(c_row + 1u, c_col, sums[4], sums[5]);
    store_row(c_row + TILE / 2u + 1u, c_col, sums[6], sums[7]);
    store_row(c_row + 2u, c_col, sums[8], sums[9]);
    store_row(c_row + TILE / 2u + 2u, c_col, sums[10], sums[11]);
    store_row(c_row + 3u, c_col, sums[12], sums[13]);
    store_row(c_row + TILE / 2u + 3u, c_col, sums[14], sums[15]);
}
