// Sum, sum of squares, count of valid and of bad elements, over blocks of BLOCK elements of a row or of a column.
// Grid: linear. By row, one workgroup per BLOCK elements; by column, one invocation per column of each block of BLOCK rows.
// Bindings: 0 x (rows, cols) read; 1 out [.., 4] f32 (i32 for i8 by row, f64 if WIDE) write; 2 params, starts in elements.
// Constants: WG; BLOCK; BY_ROW; NARROW x is of the type in params, else f32; EXACT x is i8, by row; WIDE 0, since WGSL has no f64; MISSING negative is missing (and if EXACT below -1 is bad).

@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> out: array<u32>;
@group(0) @binding(2) var<uniform> params: Params;

const WG: u32 = 64u;
const BLOCK: u32 = 1024u;
const BY_ROW: u32 = 1u;
const NARROW: u32 = 0u;
// Bytes are added as integers: exact, and a block of them cannot overflow.
const EXACT: u32 = 0u;
const WIDE: u32 = 0u;
const MISSING: u32 = 0u;

// The four sums of each invocation, as words.
var<workgroup> partial: array<vec4<u32>, WG>;

fn terms(i: u32) -> vec4<f32> {
    let dtype = select(DTYPE_F32, params.x_type, NARROW == 1u);
    let bits = decode_bits(x[word_of(i, dtype)], x[high_word_of(i, dtype)], i, dtype);
    if !is_finite_bits(bits) {
        return vec4(0.0, 0.0, 0.0, 1.0);
    }
    let value = bitcast<f32>(bits);
    if MISSING == 1u && value < 0.0 {
        return vec4(0.0);
    }
    return vec4(value, value * value, 1.0, 0.0);
}

fn exact_terms(i: u32) -> vec4<i32> {
    let value = bitcast<i32>(x[i >> 2u] << (24u - (i & 3u) * 8u)) >> 24u;
    if MISSING == 1u && value < 0 {
        return vec4(0, 0, 0, select(0, 1, value < -1));
    }
    return vec4(value, value * value, 1, 0);
}

fn add(left: vec4<u32>, right: vec4<u32>) -> vec4<u32> {
    if EXACT == 1u {
        return left + right;
    }
    return bitcast<vec4<u32>>(bitcast<vec4<f32>>(left) + bitcast<vec4<f32>>(right));
}

fn store(place: u32, words: vec4<u32>) {
    let i = params.out0 + 4u * place;
    out[i] = words.x;
    out[i + 1u] = words.y;
    out[i + 2u] = words.z;
    out[i + 3u] = words.w;
}

fn by_row(block: u32, lane: u32) {
    let parts = (params.cols + BLOCK - 1u) / BLOCK;
    let row = block / parts;
    if row >= params.rows {
        return;
    }
    let first = (block % parts) * BLOCK;
    let end = min(params.cols, first + BLOCK);
    // The bits of 0.0 and of 0 are the same.
    var words = vec4<u32>();
    for (var col = first + lane; col < end; col += WG) {
        let i = params.x0 + row * params.cols + col;
        if EXACT == 1u {
            words += bitcast<vec4<u32>>(exact_terms(i));
        } else {
            words = add(words, bitcast<vec4<u32>>(terms(i)));
        }
    }
    partial[lane] = words;
    for (var half = WG / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if lane < half {
            partial[lane] = add(partial[lane], partial[lane + half]);
        }
    }
    if lane == 0u {
        store(block, partial[0]);
    }
}

fn by_column(group: u32, lane: u32) {
    let across = (params.cols + WG - 1u) / WG;
    let part = group / across;
    let col = (group % across) * WG + lane;
    let first = part * BLOCK;
    // `first` is not compared, since it overflows in the last workgroups of a folded grid.
    if part > (params.rows - 1u) / BLOCK || col >= params.cols {
        return;
    }
    var sums = vec4<f32>();
    for (var row = first; row < min(params.rows, first + BLOCK); row++) {
        sums += terms(params.x0 + row * params.cols + col);
    }
    store(part * params.cols + col, bitcast<vec4<u32>>(sums));
}

@compute @workgroup_size(WG)
fn reduce(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let number = linear_group(group, groups);
    if BY_ROW == 1u {
        by_row(number, lane);
    } else {
        by_column(number, lane);
    }
}
