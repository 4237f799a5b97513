// Copies rows: out[i, j] = x[i, j], or x[indices[i], j] if this launch has that row of x.
// Grid: linear, one workgroup per WG units of 16 bytes; a segment has `units`, the first of which holds its first element.
// Bindings: 0 x (rows, cols) read; 1 indices u32 read; 2 out, segments of `span` elements, `pitch` from each to the next, read, write; 3 count u32 of the indices past last_row, read, write; 4 params, starts in elements.
// Constants: WG; BYTES 1, 2 or 4; BY_INDEX 1 if indices name the rows of x.

@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read> indices: array<u32>;
@group(0) @binding(2) var<storage, read_write> out: array<u32>;
@group(0) @binding(3) var<storage, read_write> count: array<atomic<u32>>;
@group(0) @binding(4) var<uniform> params: Params;

const WG: u32 = 256u;
const BYTES: u32 = 4u;
const BY_INDEX: u32 = 1u;

// The number of words of a unit.
const WORDS: u32 = 4u;
// The number of elements of a word.
const EACH: u32 = 4u / BYTES;
const ELEMENT: u32 = 0xffffffffu >> (32u - 8u * BYTES);

// Returns the row of this launch's part of x that becomes row `row` of out, or at least x_rows if the part does not have that row.
fn source_of(row: u32) -> u32 {
    if BY_INDEX == 1u {
        return indices[params.index0 + row] - params.first_row;
    }
    return row;
}

// Writes one word, and returns how many of the rows that start in it have an index above last_row.
fn copy_word(item: u32) -> u32 {
    let words = WORDS * params.units;
    let segment = item / words;
    if segment >= params.segments {
        return 0u;
    }
    let begin = params.out0 + segment * params.pitch;
    let end = begin + params.span;
    let place = begin / EACH + item - segment * words;
    let first = EACH * place;
    // If several segments share a word, the invocation of the first segment writes it.
    let shared_before = segment > 0u && end - params.pitch > first;
    if first >= end || shared_before {
        return 0u;
    }
    let start = max(first, begin);
    var at = segment;
    var offset = start - begin;
    var row = segment + offset / params.cols;
    var column = offset % params.cols;
    var source = source_of(row);
    var refused = u32(column == 0u && source + params.first_row > params.last_row);
    var word = 0u;
    var written = 0u;
    for (var i = start; i < first + EACH && at < params.segments; i++) {
        if offset < params.span {
            if column == params.cols {
                column = 0u;
                row++;
                source = source_of(row);
                refused += u32(source + params.first_row > params.last_row);
            }
            if source < params.x_rows {
                let element = params.x0 + source * params.cols + column;
                let value = (x[element / EACH] >> (8u * BYTES * (element % EACH))) & ELEMENT;
                let shift = 8u * BYTES * (i - first);
                word |= value << shift;
                written |= ELEMENT << shift;
            }
            column++;
        }
        offset++;
        if offset == params.pitch {
            offset = 0u;
            at++;
        }
    }
    if written == 0u {
        return refused;
    }
    if written != 0xffffffffu {
        word |= out[place] & ~written;
    }
    out[place] = word;
    return refused;
}

@compute @workgroup_size(WG)
fn copy_rows(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let first = linear_group(group, groups) * WORDS * WG + lane;
    var refused = 0u;
    for (var i = 0u; i < WORDS; i++) {
        refused += copy_word(first + i * WG);
    }
    if refused != 0u {
        atomicAdd(&count[0], refused);
    }
}
