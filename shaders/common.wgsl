// Decodes stored elements to f32, numbers workgroups along a line, and multiplies bytes.
// Appended to every kernel, so that the line numbers of the kernel's own file stay. `dtype` is the code of a DType: f32, for
// which the switches fold away, or one of the parameters, the same for all invocations.

// The word of a buffer that holds element i.
fn word_of(i: u32, dtype: u32) -> u32 {
    switch dtype {
        case 3u, 4u: { return i >> 2u; }
        case 1u, 2u, 5u, 6u: { return i >> 1u; }
        default: { return i; }
    }
}

// Element i, found in `word`, as the bits of an f32: where NaN and infinity are told apart, since compilers may assume
// that floats hold neither.
fn decode_bits(word: u32, i: u32, dtype: u32) -> u32 {
    let byte = (word >> ((i & 3u) * 8u)) & 0xffu;
    let half = (word >> ((i & 1u) * 16u)) & 0xffffu;
    switch dtype {
        case 1u: { return f16_bits(half); }
        case 2u: { return half << 16u; }
        case 3u: { return bitcast<u32>(f32(byte)); }
        case 4u: { return bitcast<u32>(f32(bitcast<i32>(byte << 24u) >> 24u)); }
        case 5u: { return bitcast<u32>(f32(half)); }
        case 6u: { return bitcast<u32>(f32(bitcast<i32>(half << 16u) >> 16u)); }
        case 7u: { return bitcast<u32>(f32(word)); }
        case 8u: { return bitcast<u32>(f32(bitcast<i32>(word))); }
        default: { return word; }
    }
}

// Four elements by one choice of their type.
fn decode_four(words: vec4<u32>, i: vec4<u32>, dtype: u32) -> vec4<f32> {
    let bytes = (words >> ((i & vec4(3u)) * 8u)) & vec4(0xffu);
    let halves = (words >> ((i & vec4(1u)) * 16u)) & vec4(0xffffu);
    switch dtype {
        case 1u: {
            let bits = vec4(f16_bits(halves.x), f16_bits(halves.y), f16_bits(halves.z), f16_bits(halves.w));
            return bitcast<vec4<f32>>(bits);
        }
        case 2u: { return bitcast<vec4<f32>>(halves << vec4(16u)); }
        case 3u: { return vec4<f32>(bytes); }
        case 4u: { return vec4<f32>(bitcast<vec4<i32>>(bytes << vec4(24u)) >> vec4(24u)); }
        case 5u: { return vec4<f32>(halves); }
        case 6u: { return vec4<f32>(bitcast<vec4<i32>>(halves << vec4(16u)) >> vec4(16u)); }
        case 7u: { return vec4<f32>(words); }
        case 8u: { return vec4<f32>(bitcast<vec4<i32>>(words)); }
        default: { return bitcast<vec4<f32>>(words); }
    }
}

// unpack2x16float may flush subnormals and need not keep NaN.
fn f16_bits(half: u32) -> u32 {
    let sign = (half & 0x8000u) << 16u;
    let exponent = (half >> 10u) & 31u;
    let mantissa = half & 0x3ffu;
    if exponent == 31u {
        return sign | 0x7f800000u | (mantissa << 13u);
    }
    if exponent == 0u {
        return sign | bitcast<u32>(f32(mantissa) * 0x1p-24f);
    }
    return sign | ((exponent + 112u) << 23u) | (mantissa << 13u);
}

fn is_finite_bits(bits: u32) -> bool {
    return (bits & 0x7f800000u) != 0x7f800000u;
}

// The number of a workgroup in a grid that Grid::linear folded.
fn linear_group(group: vec3<u32>, groups: vec3<u32>) -> u32 {
    return group.y * groups.x + group.x;
}

// A word of four codes times one of four digits, for four columns.
fn dots(four: u32, words: vec4<u32>) -> vec4<i32> {
    return vec4(
        dot4I8Packed(four, words.x),
        dot4I8Packed(four, words.y),
        dot4I8Packed(four, words.z),
        dot4I8Packed(four, words.w),
    );
}
