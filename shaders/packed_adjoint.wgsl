// Adds codes times limbs, and the second set of limbs for missing codes, over rows: sums[entry, column] += 64-bit integers.
// Grid: linear, one workgroup per TILE words, PART_COLUMNS columns and depth rows; those of the same words and columns add to the same sums.
// Bindings: 0 packed (rows, words) read; 1 weights (rows / 4, sets row limbs) read; 2 sums (entries, columns, 2) u32 read and written; 3 params.
// Constants: TILE; MISSING whether code 3 occurs: two sets of limbs; LIMBS of a weight, at most 3.

@group(0) @binding(0) var<storage, read> packed: array<u32>;
@group(0) @binding(1) var<storage, read> weights: array<u32>;
@group(0) @binding(2) var<storage, read_write> sums: array<atomic<u32>>;
@group(0) @binding(3) var<uniform> params: Params;

const TILE: u32 = 4u;
const MISSING: u32 = 0u;
const LIMBS: u32 = 3u;

// The number of words that a workgroup takes at once.
const PART: u32 = 4u;
// The number of columns of a workgroup.
const PART_COLUMNS: u32 = 64u;

// Four rows of an entry are a word, with a byte for each row. An invocation adds products for 4 entries, which are a byte of a word, and 4
// columns with all three limbs: 4 vec4 loads for 48 products of four bytes. Neighbours take the next entries, so that whole subgroups are
// idle if columns are few.
const FOURS: u32 = 4u * PART;
// The groups of four columns that a workgroup takes at once.
const SLOTS: u32 = 8u;
const WG: u32 = FOURS * SLOTS;
const SETS: u32 = 1u + MISSING;
// The number of groups of four rows that a workgroup holds at once.
const DEPTH: u32 = 16u / SETS;
// Without missing codes, the masks take no memory.
const MASKS: u32 = 1u + MISSING * (DEPTH * FOURS - 1u);

// [4 rows][4 entries]: codes, with 0 for missing ones, and masks with 1 for missing codes: 4 KiB, or 2 KiB each.
var<workgroup> codes: array<vec4<u32>, DEPTH * FOURS>;
var<workgroup> masks: array<vec4<u32>, MASKS>;
// [4 rows][word]: 1 if a code is missing.
var<workgroup> some_missing: array<u32, DEPTH * PART>;
// [4 rows][set][limb][4 columns]: limbs, 6 KiB at most.
var<workgroup> limbs: array<vec4<u32>, DEPTH * SETS * LIMBS * SLOTS>;

fn load_word(row: u32, end: u32, word: u32) -> u32 {
    if row >= end {
        return 0u;
    }
    return packed[params.packed0 + row * params.words + word];
}

// Returns byte i of each of four words, as one word.
fn byte_of_each(words: vec4<u32>, i: u32) -> u32 {
    let bytes = (words >> vec4(8u * i)) & vec4(0xffu);
    return bytes.x | (bytes.y << 8u) | (bytes.z << 16u) | (bytes.w << 24u);
}

fn load_codes(row0: u32, end: u32, word0: u32, lane: u32) {
    for (var i = lane; i < DEPTH * PART; i += WG) {
        let row = row0 + 4u * (i / PART);
        let word = word0 + i % PART;
        let bits = vec4(
            load_word(row, end, word),
            load_word(row + 1u, end, word),
            load_word(row + 2u, end, word),
            load_word(row + 3u, end, word),
        );
        for (var j = 0u; j < 4u; j++) {
            let four = (vec4(byte_of_each(bits, j)) >> vec4(0u, 2u, 4u, 6u)) & vec4(0x03030303u);
            if MISSING == 1u {
                let mask = four & (four >> vec4(1u)) & vec4(0x01010101u);
                codes[4u * i + j] = four ^ (3u * mask);
                masks[4u * i + j] = mask;
            } else {
                codes[4u * i + j] = four;
            }
        }
        if MISSING == 1u {
            let missing = bits & (bits >> vec4(1u)) & vec4(0x55555555u);
            some_missing[i] = missing.x | missing.y | missing.z | missing.w;
        }
    }
}

fn load_limbs(row0: u32, end: u32, first_column: u32, lane: u32) {
    for (var i = lane; i < DEPTH * SETS * LIMBS * SLOTS; i += WG) {
        let column = first_column + 4u * (i % SLOTS);
        let limb = i / SLOTS % LIMBS;
        let of_set = i / (LIMBS * SLOTS) % SETS;
        let row = row0 + 4u * (i / (SETS * LIMBS * SLOTS));
        let start = params.weights0 + (row / 4u * SETS + of_set) * params.row_limbs + limb * params.columns;
        var words = vec4<u32>();
        for (var j = 0u; j < 4u && column + j < params.columns && row < end; j++) {
            words[j] = weights[start + column + j];
        }
        limbs[i] = words;
    }
}

// [entry][limb]: indices are constant, which keeps the sums in registers.
fn add_products(totals: ptr<function, array<vec4<i32>, 12>>, entries: vec4<u32>, place: u32) {
    let low = limbs[place];
    (*totals)[0] += dots(entries.x, low);
    (*totals)[3] += dots(entries.y, low);
    (*totals)[6] += dots(entries.z, low);
    (*totals)[9] += dots(entries.w, low);
    if LIMBS > 1u {
        let middle = limbs[place + SLOTS];
        (*totals)[1] += dots(entries.x, middle);
        (*totals)[4] += dots(entries.y, middle);
        (*totals)[7] += dots(entries.z, middle);
        (*totals)[10] += dots(entries.w, middle);
    }
    if LIMBS > 2u {
        let high = limbs[place + 2u * SLOTS];
        (*totals)[2] += dots(entries.x, high);
        (*totals)[5] += dots(entries.y, high);
        (*totals)[8] += dots(entries.z, high);
        (*totals)[11] += dots(entries.w, high);
    }
}

// Adds low + 256 middle + 65536 high, times a power of two, in 64 bits. In whatever order workgroups add, exactly one of them sees each
// carry out of the low word.
fn add(i: u32, low: i32, middle: i32, high: i32) {
    let first = bitcast<u32>(low);
    let second = first + (bitcast<u32>(middle) << 8u);
    let third = second + (bitcast<u32>(high) << 16u);
    let carries = select(0, 1, second < first) + select(0, 1, third < second);
    let upper = (low >> 31u) + (middle >> 24u) + (high >> 16u) + carries;
    let shifted = third << params.shift;
    // The shift is in two steps, since a shift by 32 would do nothing.
    let over = (third >> 1u) >> (31u - params.shift);
    let before = atomicAdd(&sums[i], shifted);
    let carry = select(0u, 1u, before + shifted < before);
    let carried = ((bitcast<u32>(upper) << params.shift) | over) + carry;
    if carried != 0u {
        atomicAdd(&sums[i + 1u], carried);
    }
}

fn store(entry: u32, column: u32, low: vec4<i32>, middle: vec4<i32>, high: vec4<i32>) {
    if entry >= params.entries {
        return;
    }
    for (var j = 0u; j < 4u && column + j < params.columns; j++) {
        add(params.sums0 + 2u * (entry * params.columns + column + j), low[j], middle[j], high[j]);
    }
}

// Multiplies the words from `word` on of rows `first` to `end`, for the columns from `start` on.
fn multiply_part(word: u32, first: u32, end: u32, start: u32, lane: u32) {
    let four = lane % FOURS;
    let slot = lane / FOURS;
    let end_column = min(params.columns, start + PART_COLUMNS);
    for (var first_column = start; first_column < end_column; first_column += 4u * SLOTS) {
        let column = first_column + 4u * slot;
        var totals: array<vec4<i32>, 12>;
        for (var row0 = first; row0 < end; row0 += 4u * DEPTH) {
            load_codes(row0, end, params.word0 + word, lane);
            load_limbs(row0, end, first_column, lane);
            workgroupBarrier();
            if column < params.columns {
                for (var depth = 0u; depth < DEPTH; depth++) {
                    let place = depth * SETS * LIMBS * SLOTS + slot;
                    add_products(&totals, codes[depth * FOURS + four], place);
                    if MISSING == 1u && some_missing[depth * PART + four / 4u] != 0u {
                        add_products(&totals, masks[depth * FOURS + four], place + LIMBS * SLOTS);
                    }
                }
            }
            workgroupBarrier();
        }
        if column < params.columns {
            let entry = 16u * word + 4u * four;
            store(entry, column, totals[0], totals[1], totals[2]);
            store(entry + 1u, column, totals[3], totals[4], totals[5]);
            store(entry + 2u, column, totals[6], totals[7], totals[8]);
            store(entry + 3u, column, totals[9], totals[10], totals[11]);
        }
    }
}

@compute @workgroup_size(WG)
fn packed_adjoint(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let tiles = (params.word_count + TILE - 1u) / TILE;
    let parts = (params.columns + PART_COLUMNS - 1u) / PART_COLUMNS;
    let number = linear_group(group, groups);
    // Workgroups with adjacent numbers read adjacent words of the same rows.
    let tile = number % tiles;
    let split = number / tiles / parts;
    let start = number / tiles % parts * PART_COLUMNS;
    // The first row is not compared, since it may overflow in the last workgroups of a folded grid.
    if split > (params.rows - 1u) / params.depth {
        return;
    }
    let first = split * params.depth;
    let end = min(params.rows, first + params.depth);
    for (var part = 0u; part < TILE && tile * TILE + part < params.word_count; part += PART) {
        multiply_part(tile * TILE + part, first, end, start, lane);
    }
}
