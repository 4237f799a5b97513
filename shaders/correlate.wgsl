// Weighted sums of neighbours along one axis, or along up to three: out[i] = sum of weights[t] x[i + o + t - w / 2] along y, or along z, y and x.
// Grid: linear, one workgroup per WG words of the output (of f64, elements), or where TILED per 16 x 32 outputs of one z.
// Bindings: 0 x (outer, z, y, x, step) read; 1 numbers read: constants beyond the edges of z, y and x, then weights of z, y and x; 2 out read_write; 3 params.
// Constants: WG; TILED sums are along z, y and x, else along y; WIDE 0, since WGSL has no f64.

struct Params {
    x0: u32,
    out0: u32,
    x_type: u32,
    out_type: u32,
    outer: u32,
    nz: u32,
    ny: u32,
    nx: u32,
    mz: u32,
    my: u32,
    mx: u32,
    oz: u32,
    oy: u32,
    ox: u32,
    wz: u32,
    wy: u32,
    wx: u32,
    first: u32,
    count: u32,
    step: u32,
    edges: u32,
    kinds: u32,
    combine: u32,
    truncate: u32,
}

@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read> numbers: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<u32>;
@group(0) @binding(3) var<uniform> params: Params;

const WG: u32 = 256u;
const TILED: u32 = 0u;
const WIDE: u32 = 0u;

// Outputs of a tile, and numbers that it has room for.
const TILE_Y: u32 = 16u;
const TILE_X: u32 = 32u;
const ROOM: u32 = 4000u;

const REFLECT: u32 = 0u;
const NEAREST: u32 = 2u;
const WRAP: u32 = 3u;
const CONSTANT: u32 = 4u;

const EVEN: u32 = 1u;
const ANY: u32 = 3u;

const ADD: u32 = 1u;
const ROOT: u32 = 3u;

var<workgroup> cells: array<f32, TILED * (ROOM - 1u) + 1u>;

// Which of n elements stands at a coordinate; below 0 where it is the constant.
fn source_of(edge: u32, at: i32, n: i32) -> i32 {
    if at >= 0 && at < n {
        return at;
    }
    if edge == CONSTANT {
        return -1;
    }
    if edge == NEAREST {
        return select(n - 1, 0, at < 0);
    }
    // From the left, as from 0 on: remainders of numbers below 0 are not the same on every device.
    let is_left = at < 0;
    if edge == WRAP {
        return select(at % n, n - 1 - (-1 - at) % n, is_left);
    }
    if edge == REFLECT {
        let place = select(at, -1 - at, is_left) % (2 * n);
        return min(place, 2 * n - 1 - place);
    }
    let period = max(2 * n - 2, 1);
    let place = abs(at) % period;
    return min(place, period - place);
}

fn edge_of(axis: u32) -> u32 {
    return (params.edges >> (4u * axis)) & 15u;
}

fn kind_of(axis: u32) -> u32 {
    return (params.kinds >> (4u * axis)) & 15u;
}

fn element(i: u32) -> f32 {
    return bitcast<f32>(decode_bits(x[word_of(i, params.x_type)], x[high_word_of(i, params.x_type)], i, params.x_type));
}

// An axis in global memory, of which element `base` is the first at hand, and the others are `stride` apart.
struct Axis {
    base: u32,
    stride: u32,
    n: i32,
    edge: u32,
    constant: f32,
}

fn at(axis: Axis, coordinate: i32) -> f32 {
    let place = source_of(axis.edge, coordinate, axis.n);
    if place < 0 {
        return axis.constant;
    }
    return element(axis.base + (u32(place) - params.first) * axis.stride);
}

// The sum of taps whose centre is at a coordinate: from the centre, then from the outermost to the innermost, those as far from
// the centre together; of weights without symmetry from the last, then from the first.
fn sum_global(axis: Axis, weights: u32, count: u32, kind: u32, centre: i32) -> f32 {
    let radius = i32(count / 2u);
    if kind == ANY {
        var sum = at(axis, centre + radius) * numbers[weights + count - 1u];
        for (var t = 0; t < 2 * radius; t++) {
            sum = fma(at(axis, centre - radius + t), numbers[weights + u32(t)], sum);
        }
        return sum;
    }
    var sum = at(axis, centre) * numbers[weights + u32(radius)];
    for (var t = 0; t < radius; t++) {
        let before = at(axis, centre - radius + t);
        let after = at(axis, centre + radius - t);
        sum = fma(select(before - after, before + after, kind == EVEN), numbers[weights + u32(t)], sum);
    }
    return sum;
}

// The same of cells from `first` on, `stride` apart.
fn sum_cells(first: u32, stride: u32, weights: u32, count: u32, kind: u32) -> f32 {
    let end = count - 1u;
    if kind == ANY {
        var sum = cells[first + end * stride] * numbers[weights + end];
        for (var t = 0u; t < end; t++) {
            sum = fma(cells[first + t * stride], numbers[weights + t], sum);
        }
        return sum;
    }
    let radius = count / 2u;
    var sum = cells[first + radius * stride] * numbers[weights + radius];
    for (var t = 0u; t < radius; t++) {
        let before = cells[first + t * stride];
        let after = cells[first + (end - t) * stride];
        sum = fma(select(before - after, before + after, kind == EVEN), numbers[weights + t], sum);
    }
    return sum;
}

fn truncated(value: f32) -> f32 {
    if params.truncate == 0u {
        return value;
    }
    return truncate_to(value, params.truncate - 1u);
}

// What element i of the output becomes; it is f32 where it counts.
fn combined(value: f32, i: u32) -> f32 {
    let sum = truncated(value);
    if params.combine == 0u {
        return sum;
    }
    let old = bitcast<f32>(out[i]);
    let all = select(fma(sum, sum, old), old + sum, params.combine == ADD);
    return select(all, sqrt(all), params.combine == ROOT);
}

// One of the outputs along y.
fn sum_along(i: u32) -> f32 {
    let line = params.nx * params.step;
    let row = i / line;
    let array = row / params.my;
    let base = params.x0 + array * params.count * line + (i - row * line);
    let axis = Axis(base, line, i32(params.ny), edge_of(1u), numbers[1]);
    return sum_global(axis, 3u, params.wy, kind_of(1u), i32(row - array * params.my + params.oy));
}

// What a sum along y sees at an element of a row: the sum across z, or where there is none the element.
fn sum_across(array: u32, z: u32, row: u32, place: u32) -> f32 {
    let line = params.nx * params.step;
    if params.wz == 0u {
        return element(params.x0 + (array * params.count + row - params.first) * line + place);
    }
    let base = params.x0 + (array * params.count * params.ny + row) * line + place;
    let axis = Axis(base, params.ny * line, i32(params.nz), edge_of(0u), numbers[0]);
    return truncated(sum_global(axis, 3u, params.wz, kind_of(0u), i32(z + params.oz)));
}

// Elements of a word of the output: of f64, an element has two.
fn elements_of_word() -> u32 {
    return select(select(select(1u, 2u, is_half(params.out_type)), 4u, is_byte(params.out_type)), 1u, params.out_type == 9u);
}

fn store_word(item: u32, each: u32, values: vec4<f32>, start: u32, end: u32) {
    if params.out_type == 9u {
        let bits = f64_of(bitcast<u32>(values.x));
        out[2u * item] = bits.x;
        out[2u * item + 1u] = bits.y;
        return;
    }
    var word = 0u;
    if end - start < each {
        word = out[item];
    }
    let size = 32u / each;
    for (var j = start; j < end; j++) {
        word = insertBits(word, encode_bits(bitcast<u32>(values[j]), params.out_type), size * j, size);
    }
    out[item] = word;
}

fn fill_cells(lane: u32, first: vec2<u32>, array: u32, z: u32, end: vec2<u32>, width: u32) {
    let rows = min(TILE_Y, params.my - first.y) + end.y;
    for (var i = lane; i < (TILE_Y + end.y) * width; i += WG) {
        let row = i / width;
        let place = first.x + i - row * width;
        let column = place / params.step;
        let at_y = source_of(edge_of(1u), i32(first.y + row + params.oy) - i32(end.y / 2u), i32(params.ny));
        let at_x = source_of(edge_of(2u), i32(column + params.ox) - i32(end.x / 2u), i32(params.nx));
        var value = numbers[1];
        // Rows below the output see what is not at hand.
        if at_x < 0 || row >= rows {
            value = 0.0;
        } else if at_y >= 0 {
            value = sum_across(array, z, u32(at_y), u32(at_x) * params.step + (place - column * params.step));
        }
        cells[i] = value;
    }
}

fn fill_lines(lane: u32, first: vec2<u32>, end: vec2<u32>, width: u32) {
    for (var i = lane; i < TILE_Y * width; i += WG) {
        var value = cells[i];
        if params.wy > 0u {
            value = truncated(sum_cells(i, width, 3u + params.wz, params.wy, kind_of(1u)));
        }
        let column = (first.x + i % width) / params.step;
        if params.wx > 0u && source_of(edge_of(2u), i32(column + params.ox) - i32(end.x / 2u), i32(params.nx)) < 0 {
            value = numbers[2];
        }
        cells[(TILE_Y + end.y) * width + i] = value;
    }
}

// Where a tile's first output is: element, row, z, array.
fn tile_at(tile: u32) -> vec4<u32> {
    let across = (params.mx * params.step + TILE_X - 1u) / TILE_X;
    let down = (params.my + TILE_Y - 1u) / TILE_Y;
    let row = tile / across;
    let plane = row / down;
    return vec4((tile - row * across) * TILE_X, (row - plane * down) * TILE_Y, plane % params.mz, plane / params.mz);
}

fn store_tile(lane: u32, first: vec4<u32>, end: vec2<u32>, width: u32) {
    let line = params.mx * params.step;
    let plane = first.w * params.mz + first.z;
    let each = elements_of_word();
    for (var i = lane * each; i < TILE_Y * TILE_X; i += WG * each) {
        let row = i / TILE_X;
        let column = i % TILE_X;
        if first.y + row < params.my && first.x + column < line {
            let place = params.out0 + (plane * params.my + first.y + row) * line + first.x + column;
            let lines = (TILE_Y + end.y + row) * width + column;
            var values = vec4(0.0);
            for (var j = 0u; j < each; j++) {
                var value = cells[lines + j];
                if params.wx > 0u {
                    value = sum_cells(lines + j, params.step, 3u + params.wz + params.wy, params.wx, kind_of(2u));
                }
                values[j] = combined(value, place + j);
            }
            store_word(place / each, each, values, 0u, each);
        }
    }
}

@compute @workgroup_size(WG)
fn correlate(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    if TILED == 1u {
        let first = tile_at(linear_group(group, groups));
        let exists = first.w < params.outer;
        let reach = vec2(max(params.wx, 1u), max(params.wy, 1u)) - vec2(1u);
        let width = TILE_X + reach.x * params.step;
        if exists {
            fill_cells(lane, first.xy, first.w, first.z, reach, width);
        }
        workgroupBarrier();
        if exists {
            fill_lines(lane, first.xy, reach, width);
        }
        workgroupBarrier();
        if exists {
            store_tile(lane, first, reach, width);
        }
        return;
    }
    let each = elements_of_word();
    let item = params.out0 / each + linear_group(group, groups) * WG + lane;
    let end = params.out0 + params.outer * params.my * params.nx * params.step;
    let start = max(item * each, params.out0);
    let stop = min(item * each + each, end);
    if start >= stop {
        return;
    }
    var values = vec4(0.0);
    for (var i = start; i < stop; i++) {
        values[i - item * each] = combined(sum_along(i - params.out0), i);
    }
    store_word(item, each, values, start - item * each, stop - item * each);
}
