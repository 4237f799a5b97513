// Adds what missing codes come to, less what a product that took them for 3 added: sums[entry, column] += 64-bit integers.
// Grid: linear, one workgroup per TILE words and depth rows.
// Bindings: 0 packed (rows, words) read; 1 weights (rows / 4, 2 row limbs) read; 2 sums (entries, columns, 2) u32 read and written; 3 params.
// Constants: TILE; LIMBS of a weight, 2 or 3.

struct Params {
    rows: u32,
    words: u32,
    entries: u32,
    columns: u32,
    row_limbs: u32,
    word0: u32,
    word_count: u32,
    depth: u32,
    packed0: u32,
    weights0: u32,
    sums0: u32,
    shift: u32,
}

@group(0) @binding(0) var<storage, read> packed: array<u32>;
@group(0) @binding(1) var<storage, read> weights: array<u32>;
@group(0) @binding(2) var<storage, read_write> sums: array<atomic<u32>>;
@group(0) @binding(3) var<uniform> params: Params;

const TILE: u32 = 128u;
const LIMBS: u32 = 3u;

const WG: u32 = 64u;
// Columns that are added at once, each by an invocation of each part of the workgroup.
const LANES: u32 = 32u;

// Words of four rows that have a missing code: how many, 4 times the word and which row, and 1 for each missing code.
var<workgroup> listed: atomic<u32>;
var<workgroup> places: array<u32, 4u * TILE>;
var<workgroup> masks: array<u32, 4u * TILE>;

fn list(row0: u32, end: u32, word0: u32, lane: u32) {
    for (var i = lane; i < 4u * TILE; i += WG) {
        let row = row0 + i / TILE;
        let word = word0 + i % TILE;
        if row >= end || word >= params.word_count {
            continue;
        }
        let bits = packed[params.packed0 + row * params.words + params.word0 + word];
        let mask = bits & (bits >> 1u) & 0x55555555u;
        if mask != 0u {
            let at = atomicAdd(&listed, 1u);
            places[at] = 4u * word + i / TILE;
            masks[at] = mask;
        }
    }
}

// The numbers that the limbs of four rows make.
fn numbers(at: u32) -> vec4<i32> {
    var sum = vec4<i32>();
    for (var t = 0u; t < LIMBS; t++) {
        let limbs = vec4(weights[at + t * params.columns]) << vec4(24u, 16u, 8u, 0u);
        sum += (bitcast<vec4<i32>>(limbs) >> vec4(24u)) << vec4(8u * t);
    }
    return sum;
}

// Adds in 64 bits. Whichever order invocations add in, each carry out of the low word is seen by one of them.
fn add(i: u32, term: i32) {
    let low = bitcast<u32>(term) << params.shift;
    let before = atomicAdd(&sums[i], low);
    // In two steps, since a shift by 32 would be none.
    let high = bitcast<u32>((term >> 1u) >> (31u - params.shift));
    let carried = high + select(0u, 1u, before + low < before);
    if carried != 0u {
        atomicAdd(&sums[i + 1u], carried);
    }
}

fn add_listed(row0: u32, lane: u32) {
    let count = atomicLoad(&listed);
    for (var column = lane % LANES; count > 0u && column < params.columns; column += LANES) {
        let at = params.weights0 + row0 / 4u * 2u * params.row_limbs + column;
        let terms = numbers(at + params.row_limbs) - 3 * numbers(at);
        for (var i = lane / LANES; i < count; i += WG / LANES) {
            let term = terms[places[i] % 4u];
            for (var mask = masks[i]; mask != 0u; mask &= mask - 1u) {
                let entry = 16u * (places[i] / 4u) + countTrailingZeros(mask) / 2u;
                if entry < params.entries {
                    add(params.sums0 + 2u * (entry * params.columns + column), term);
                }
            }
        }
    }
}

@compute @workgroup_size(WG)
fn packed_missing(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let tiles = (params.word_count + TILE - 1u) / TILE;
    let number = linear_group(group, groups);
    // Neighbours read on in the same rows.
    let word0 = number % tiles * TILE;
    let split = number / tiles;
    // Not by the first row, which may wrap in the last workgroups of a folded grid.
    if split > (params.rows - 1u) / params.depth {
        return;
    }
    let first = split * params.depth;
    let end = min(params.rows, first + params.depth);
    for (var row0 = first; row0 < end; row0 += 4u) {
        if lane == 0u {
            atomicStore(&listed, 0u);
        }
        workgroupBarrier();
        list(row0, end, word0, lane);
        workgroupBarrier();
        add_listed(row0, lane);
        workgroupBarrier();
    }
}
