// Packed rows times limbs: y = s (sum g x - mean sum x) over the codes that are not missing, or the limbs of s y and of mean s y.
// Grid: linear, one workgroup per TILE rows.
// Bindings: 0 packed (rows, words) read; 1 xs (4 words, row limbs) read; 2 table (rows, 2) of mean, s, f32 read; 3 columns (columns, 2) of total, factor, f32 read; 4 out write; 5 params.
// Constants: TILE; MISSING whether code 3 occurs; AS_LIMBS whether out is (rows / 4, sets row limbs) limbs, else (rows, columns) f32.

@group(0) @binding(0) var<storage, read> packed: array<u32>;
@group(0) @binding(1) var<storage, read> xs: array<u32>;
@group(0) @binding(2) var<storage, read> table: array<f32>;
@group(0) @binding(3) var<storage, read> columns: array<f32>;
@group(0) @binding(4) var<storage, read_write> out: array<u32>;
@group(0) @binding(5) var<uniform> params: Params;

const TILE: u32 = 64u;
const MISSING: u32 = 0u;
const AS_LIMBS: u32 = 0u;

// The number of rows that a workgroup takes at once.
const PART: u32 = 64u;

// An invocation computes 4 rows of 4 columns with all three limbs: 4 vec4 loads for 48 products of four bytes. At the end it holds all
// limbs of a number, and the four rows of a word of limbs. Neighbours take the next rows, so that whole subgroups are idle if columns are
// few.
const FOURS: u32 = PART / 4u;
// The groups of four columns that a workgroup takes at once.
const SLOTS: u32 = 8u;
const WG: u32 = FOURS * SLOTS;
// The number of words of a row that a workgroup holds at once, and of their quads.
const WORDS: u32 = 4u;
const QUADS: u32 = 4u * WORDS;
// Without missing codes, the masks take no memory.
const MASKS: u32 = 1u + MISSING * (QUADS * FOURS - 1u);

// [quad][4 rows]: codes, with 0 for missing ones, and masks with 1 for missing codes: 4 KiB each.
var<workgroup> codes: array<vec4<u32>, QUADS * FOURS>;
var<workgroup> masks: array<vec4<u32>, MASKS>;
// [4 rows][word]: 1 if a code is missing.
var<workgroup> some_missing: array<u32, FOURS * WORDS>;
// [quad][limb][4 columns]: limbs, 6 KiB.
var<workgroup> limbs: array<vec4<u32>, QUADS * 3u * SLOTS>;

fn load_word(row: u32, word: u32) -> u32 {
    if row >= params.rows {
        return 0u;
    }
    return packed[params.packed0 + row * params.words + word];
}

fn load_codes(first_row: u32, word0: u32, lane: u32) {
    for (var i = lane; i < FOURS * WORDS; i += WG) {
        let four = i / WORDS;
        let row = first_row + 4u * four;
        let word = word0 + i % WORDS;
        let bits = vec4(
            load_word(row, word),
            load_word(row + 1u, word),
            load_word(row + 2u, word),
            load_word(row + 3u, word),
        );
        for (var j = 0u; j < 4u; j++) {
            let place = (4u * (i % WORDS) + j) * FOURS + four;
            let quad = (bits >> vec4(2u * j)) & vec4(0x03030303u);
            if MISSING == 1u {
                let mask = quad & (quad >> vec4(1u)) & vec4(0x01010101u);
                codes[place] = quad ^ (3u * mask);
                masks[place] = mask;
            } else {
                codes[place] = quad;
            }
        }
        if MISSING == 1u {
            let missing = bits & (bits >> vec4(1u)) & vec4(0x55555555u);
            some_missing[i] = missing.x | missing.y | missing.z | missing.w;
        }
    }
}

fn load_limbs(first_column: u32, quad0: u32, lane: u32) {
    for (var i = lane; i < QUADS * 3u * SLOTS; i += WG) {
        let column = first_column + 4u * (i % SLOTS);
        let limb = i / SLOTS % 3u;
        let start = (quad0 + i / (3u * SLOTS)) * params.row_limbs + limb * params.columns;
        var words = vec4<u32>();
        for (var j = 0u; j < 4u && column + j < params.columns; j++) {
            words[j] = xs[start + column + j];
        }
        limbs[i] = words;
    }
}

// [row][limb]: indices are constant, which keeps the sums in registers.
fn add_products(sums: ptr<function, array<vec4<i32>, 12>>, rows: vec4<u32>, place: u32) {
    let low = limbs[place];
    let middle = limbs[place + SLOTS];
    let high = limbs[place + 2u * SLOTS];
    (*sums)[0] += dots(rows.x, low);
    (*sums)[1] += dots(rows.x, middle);
    (*sums)[2] += dots(rows.x, high);
    (*sums)[3] += dots(rows.y, low);
    (*sums)[4] += dots(rows.y, middle);
    (*sums)[5] += dots(rows.y, high);
    (*sums)[6] += dots(rows.z, low);
    (*sums)[7] += dots(rows.z, middle);
    (*sums)[8] += dots(rows.z, high);
    (*sums)[9] += dots(rows.w, low);
    (*sums)[10] += dots(rows.w, middle);
    (*sums)[11] += dots(rows.w, high);
}

// Hides the origin of a number from the compiler, so that each operation is rounded by itself, in the given order.
fn rounded(x: vec4<f32>) -> vec4<f32> {
    return bitcast<vec4<f32>>(bitcast<vec4<u32>>(x) ^ vec4(params.zero));
}

// Converts whole numbers to the nearest f32, which a plain conversion need not return. Both halves are exact.
fn widen(x: vec4<i32>) -> vec4<f32> {
    return rounded(vec4<f32>(x >> vec4(16u)) * 65536.0 + vec4<f32>(x & vec4(0xffff)));
}

// Returns the numbers that the sums of limbs stand for. Products with powers of two are exact, fused or not.
fn join(low: vec4<i32>, middle: vec4<i32>, high: vec4<i32>) -> vec4<f32> {
    return rounded(rounded(widen(high) * 256.0 + widen(middle)) * 256.0 + widen(low));
}

// Returns the totals (part 0) or the factors (part 1) of four columns.
fn column_part(column: u32, part: u32) -> vec4<f32> {
    var values = vec4<f32>();
    for (var j = 0u; j < 4u && column + j < params.columns; j++) {
        values[j] = columns[2u * (column + j) + part];
    }
    return values;
}

// Returns a row's results, from its mean, its factor and its sums, before the columns' factors.
fn standardized(row: vec2<f32>, sum: vec4<f32>, present: vec4<f32>) -> vec4<f32> {
    return rounded(rounded(sum - rounded(row.x * present)) * row.y);
}

// Returns the mean and the factor of a row; 0 past the last row, where limbs are 0 too.
fn table_row(row: u32) -> vec2<f32> {
    if row >= params.rows {
        return vec2<f32>();
    }
    let i = params.table0 + 2u * row;
    return vec2(table[i], table[i + 1u]);
}

fn store_values(row: u32, column: u32, values: vec4<f32>) {
    if row >= params.rows {
        return;
    }
    for (var j = 0u; j < 4u && column + j < params.columns; j++) {
        out[params.out0 + row * params.columns + column + j] = bitcast<u32>(values[j]);
    }
}

// Returns the number of words of a row of limbs.
fn width() -> u32 {
    return (1u + MISSING) * params.row_limbs;
}

// Returns the limbs of whole numbers, in the lower three bytes. Bytes from -128 to 127 differ by their highest bit from the bytes of the
// number plus 128 in each byte.
fn bytes(weights: vec4<f32>) -> vec4<u32> {
    let multiples = vec4<i32>(clamp(round(weights), vec4(-8355711.0), vec4(8355711.0)));
    return bitcast<vec4<u32>>(multiples + vec4(0x808080)) ^ vec4(0x808080u);
}

// Stores the limbs of four rows as words, from `start` on for the first column. Each vec4 has four columns of a row.
fn store_limbs(start: u32, column: u32, a: vec4<u32>, b: vec4<u32>, c: vec4<u32>, d: vec4<u32>) {
    for (var limb = 0u; limb < 3u; limb++) {
        let shift = vec4(8u * limb);
        let byte = vec4(0xffu);
        let words = ((a >> shift) & byte)
            | (((b >> shift) & byte) << vec4(8u))
            | (((c >> shift) & byte) << vec4(16u))
            | (((d >> shift) & byte) << vec4(24u));
        for (var j = 0u; j < 4u && column + j < params.columns; j++) {
            out[start + limb * params.columns + column + j] = words[j];
        }
    }
}

// Clears the padding of a row of limbs to whole tiles.
fn clear_padding(first_row: u32, lane: u32) {
    let padding = params.row_limbs - 3u * params.columns;
    let each = (1u + MISSING) * padding;
    for (var i = lane; i < FOURS * each; i += WG) {
        let four = first_row / 4u + i / each;
        if 4u * four < params.rows {
            let start = params.out0 + four * width() + i % each / padding * params.row_limbs;
            out[start + 3u * params.columns + i % padding] = 0u;
        }
    }
}

fn store(row: u32, column: u32, sums: array<vec4<i32>, 12>, absent: array<vec4<i32>, 12>) {
    let total = column_part(column, 0u);
    let scale = column_part(column, 1u);
    let a = table_row(row);
    let b = table_row(row + 1u);
    let c = table_row(row + 2u);
    let d = table_row(row + 3u);
    var present = array(total, total, total, total);
    if MISSING == 1u {
        present[0] = rounded(total - join(absent[0], absent[1], absent[2]));
        present[1] = rounded(total - join(absent[3], absent[4], absent[5]));
        present[2] = rounded(total - join(absent[6], absent[7], absent[8]));
        present[3] = rounded(total - join(absent[9], absent[10], absent[11]));
    }
    let ya = standardized(a, join(sums[0], sums[1], sums[2]), present[0]);
    let yb = standardized(b, join(sums[3], sums[4], sums[5]), present[1]);
    let yc = standardized(c, join(sums[6], sums[7], sums[8]), present[2]);
    let yd = standardized(d, join(sums[9], sums[10], sums[11]), present[3]);
    if AS_LIMBS == 0u {
        store_values(row, column, ya * scale);
        store_values(row + 1u, column, yb * scale);
        store_values(row + 2u, column, yc * scale);
        store_values(row + 3u, column, yd * scale);
    } else if row < params.rows {
        let wa = rounded(rounded(ya * a.y) * scale);
        let wb = rounded(rounded(yb * b.y) * scale);
        let wc = rounded(rounded(yc * c.y) * scale);
        let wd = rounded(rounded(yd * d.y) * scale);
        let start = params.out0 + row / 4u * width();
        store_limbs(start, column, bytes(wa), bytes(wb), bytes(wc), bytes(wd));
        if MISSING == 1u {
            let second = start + params.row_limbs;
            store_limbs(second, column, bytes(wa * a.x), bytes(wb * b.x), bytes(wc * c.x), bytes(wd * d.x));
        }
    }
}

// Multiplies the rows from `first_row` on.
fn multiply_part(first_row: u32, lane: u32) {
    let four = lane % FOURS;
    let slot = lane / FOURS;
    for (var first_column = 0u; first_column < params.columns; first_column += 4u * SLOTS) {
        let column = first_column + 4u * slot;
        var sums: array<vec4<i32>, 12>;
        var absent: array<vec4<i32>, 12>;
        // A row is a multiple of four words.
        for (var word0 = 0u; word0 < params.words; word0 += WORDS) {
            load_codes(first_row, word0, lane);
            load_limbs(first_column, 4u * word0, lane);
            workgroupBarrier();
            if column < params.columns {
                for (var quad = 0u; quad < QUADS; quad++) {
                    let place = quad * 3u * SLOTS + slot;
                    add_products(&sums, codes[quad * FOURS + four], place);
                    if MISSING == 1u && some_missing[four * WORDS + quad / 4u] != 0u {
                        add_products(&absent, masks[quad * FOURS + four], place);
                    }
                }
            }
            workgroupBarrier();
        }
        if column < params.columns {
            store(first_row + 4u * four, column, sums, absent);
        }
    }
    if AS_LIMBS == 1u {
        clear_padding(first_row, lane);
    }
}

@compute @workgroup_size(WG)
fn packed_apply(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let number = linear_group(group, groups);
    // The first row is not compared, since it may overflow in the last workgroups of a folded grid.
    if number > (params.rows - 1u) / TILE {
        return;
    }
    for (var part = 0u; part < TILE && number * TILE + part < params.rows; part += PART) {
        multiply_part(number * TILE + part, lane);
    }
}
