// Functions that decode stored elements to f32, number workgroups in a line, and multiply bytes.
// The functions that a kernel uses are appended to the kernel's file, so that its line numbers stay. `dtype` is the code of a DType:
// DTYPE_F32, for which compilers remove the switches, or a parameter, which is the same for all invocations. The codes DTYPE_F32 to
// DTYPE_F64 that are used are appended too.

// Returns the index of the word that holds element i, or of the low word of an f64.
fn word_of(i: u32, dtype: u32) -> u32 {
    switch dtype {
        case DTYPE_F64: { return 2u * i; }
        case DTYPE_U8, DTYPE_I8: { return i >> 2u; }
        case DTYPE_F16, DTYPE_BF16, DTYPE_U16, DTYPE_I16: { return i >> 1u; }
        default: { return i; }
    }
}

// Returns the index of the high word of an f64; for other types, of the only word.
fn high_word_of(i: u32, dtype: u32) -> u32 {
    return word_of(i, dtype) + select(0u, 1u, dtype == DTYPE_F64);
}

// Returns element i, which `word` and `high` hold, as the bits of an f32. Bits distinguish NaN and infinity, while compilers may assume
// that no float is either.
fn decode_bits(word: u32, high: u32, i: u32, dtype: u32) -> u32 {
    let byte = (word >> ((i & 3u) * 8u)) & 0xffu;
    let half = (word >> ((i & 1u) * 16u)) & 0xffffu;
    switch dtype {
        case DTYPE_F16: { return f16_bits(half); }
        case DTYPE_BF16: { return half << 16u; }
        case DTYPE_U8: { return bitcast<u32>(f32(byte)); }
        case DTYPE_I8: { return bitcast<u32>(f32(bitcast<i32>(byte << 24u) >> 24u)); }
        case DTYPE_U16: { return bitcast<u32>(f32(half)); }
        case DTYPE_I16: { return bitcast<u32>(f32(bitcast<i32>(half << 16u) >> 16u)); }
        case DTYPE_U32: { return bitcast<u32>(f32(word)); }
        case DTYPE_I32: { return bitcast<u32>(f32(bitcast<i32>(word))); }
        case DTYPE_F64: { return f64_bits(word, high); }
        default: { return word; }
    }
}

// Decodes four elements, with one switch over their type.
fn decode_four(words: vec4<u32>, highs: vec4<u32>, i: vec4<u32>, dtype: u32) -> vec4<f32> {
    let bytes = (words >> ((i & vec4(3u)) * 8u)) & vec4(0xffu);
    let halves = (words >> ((i & vec4(1u)) * 16u)) & vec4(0xffffu);
    switch dtype {
        case DTYPE_F16: {
            let bits = vec4(f16_bits(halves.x), f16_bits(halves.y), f16_bits(halves.z), f16_bits(halves.w));
            return bitcast<vec4<f32>>(bits);
        }
        case DTYPE_BF16: { return bitcast<vec4<f32>>(halves << vec4(16u)); }
        case DTYPE_U8: { return vec4<f32>(bytes); }
        case DTYPE_I8: { return vec4<f32>(bitcast<vec4<i32>>(bytes << vec4(24u)) >> vec4(24u)); }
        case DTYPE_U16: { return vec4<f32>(halves); }
        case DTYPE_I16: { return vec4<f32>(bitcast<vec4<i32>>(halves << vec4(16u)) >> vec4(16u)); }
        case DTYPE_U32: { return vec4<f32>(words); }
        case DTYPE_I32: { return vec4<f32>(bitcast<vec4<i32>>(words)); }
        case DTYPE_F64: {
            let left = vec2(f64_bits(words.x, highs.x), f64_bits(words.y, highs.y));
            let right = vec2(f64_bits(words.z, highs.z), f64_bits(words.w, highs.w));
            return bitcast<vec4<f32>>(vec4(left, right));
        }
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

// Returns the nearest f32; of two that are equally near, the even one.
fn f64_bits(low: u32, high: u32) -> u32 {
    let sign = high & 0x80000000u;
    if (high & 0x7ff00000u) == 0x7ff00000u {
        let is_nan = (high & 0xfffffu) != 0u || low != 0u;
        return sign | select(0x7f800000u, 0x7fc00000u, is_nan);
    }
    let exponent = i32((high >> 20u) & 0x7ffu) - 896;
    if exponent > 254 {
        return sign | 0x7f800000u;
    }
    // The mantissa has 24 bits. The bits below it are a fraction of 2^32.
    var mantissa = 0x800000u | ((high & 0xfffffu) << 3u) | (low >> 29u);
    var rest = low << 3u;
    if exponent < 1 {
        // A subnormal number has fewer bits.
        let shift = u32(1 - exponent);
        if shift > 24u {
            return sign;
        }
        rest = (mantissa << (32u - shift)) | u32(rest != 0u);
        mantissa >>= shift;
    }
    // A carry from rounding goes into the exponent.
    let bits = (u32(max(exponent, 1) - 1) << 23u) + mantissa;
    let up = rest > 0x80000000u || (rest == 0x80000000u && (bits & 1u) == 1u);
    return sign | (bits + u32(up));
}

fn is_finite_bits(bits: u32) -> bool {
    return (bits & 0x7f800000u) != 0x7f800000u;
}

fn is_nan_bits(bits: u32) -> bool {
    return (bits & 0x7fffffffu) > 0x7f800000u;
}

// Returns `value` in a way that hides its origin from the compiler, which then cannot combine it with later operations. `zero` is 0, but
// the compiler cannot know that.
fn opaque(value: f32, zero: u32) -> f32 {
    return bitcast<f32>(bitcast<u32>(value) ^ zero);
}

// Adds a value to a pair (sum, rounding error), by Knuth's two-sum. The error stays below half a unit in the last place, and is 0 for an
// infinite sum.
fn two_sum(pair: vec2<f32>, value: f32, zero: u32) -> vec2<f32> {
    let total = opaque(pair.x + value, zero);
    let part = opaque(total - pair.x, zero);
    let left = opaque(opaque(pair.x - opaque(total - part, zero), zero) + opaque(value - part, zero), zero);
    let rest = pair.y + left;
    let all = opaque(total + rest, zero);
    let sum = select(total, all, is_finite_bits(bitcast<u32>(total)));
    return vec2(sum, select(0.0, rest - opaque(all - total, zero), is_finite_bits(bitcast<u32>(sum))));
}

// Returns the number of a workgroup in a grid that Grid::linear folded.
fn linear_group(group: vec3<u32>, groups: vec3<u32>) -> u32 {
    return group.y * groups.x + group.x;
}

// Returns the sum of the products of four signed bytes. The call is in a function of its own, since in Metal's language naga gives the same
// name to all such calls of a function that share an argument.
fn byte_dot(a: u32, b: u32) -> i32 {
    return dot4I8Packed(a, b);
}

// Multiplies a word of four codes by one word of four limbs for each of four columns.
fn dots(four: u32, words: vec4<u32>) -> vec4<i32> {
    return vec4(byte_dot(four, words.x), byte_dot(four, words.y), byte_dot(four, words.z), byte_dot(four, words.w));
}

fn is_byte(dtype: u32) -> bool {
    return dtype == DTYPE_U8 || dtype == DTYPE_I8;
}

fn is_half(dtype: u32) -> bool {
    return dtype == DTYPE_F16 || dtype == DTYPE_BF16 || dtype == DTYPE_U16 || dtype == DTYPE_I16;
}

// Returns a number limited to the range of an integer type; NaN becomes 0.
fn bounded(bits: u32, dtype: u32) -> f32 {
    if (bits & 0x7fffffffu) > 0x7f800000u {
        return 0.0;
    }
    let value = bitcast<f32>(bits);
    switch dtype {
        case DTYPE_U8: { return clamp(value, 0.0, 255.0); }
        case DTYPE_I8: { return clamp(value, -128.0, 127.0); }
        case DTYPE_U16: { return clamp(value, 0.0, 65535.0); }
        case DTYPE_I16: { return clamp(value, -32768.0, 32767.0); }
        case DTYPE_U32: { return clamp(value, 0.0, 4294967296.0); }
        default: { return clamp(value, -2147483648.0, 2147483648.0); }
    }
}

// Returns a number rounded towards 0 to an element of an integer type, or unchanged for other types.
fn truncate_to(value: f32, dtype: u32) -> f32 {
    if dtype < DTYPE_U8 || dtype == DTYPE_F64 {
        return value;
    }
    return trunc(bounded(bitcast<u32>(value), dtype));
}

// Returns the bits of the nearest element of a type; if two are equally near, those of the even one. f64_of makes f64, of two words.
fn encode_bits(bits: u32, dtype: u32) -> u32 {
    switch dtype {
        case DTYPE_F32, DTYPE_F64: { return bits; }
        case DTYPE_F16: { return half_of(bits); }
        case DTYPE_BF16: {
            let is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
            return select(bits + 0x7fffu + ((bits >> 16u) & 1u), bits | 0x400000u, is_nan) >> 16u;
        }
        case DTYPE_U32: {
            let value = round(bounded(bits, dtype));
            return select(u32(value), 0xffffffffu, value >= 4294967296.0);
        }
        case DTYPE_I32: {
            let value = round(bounded(bits, dtype));
            return select(bitcast<u32>(i32(value)), 0x7fffffffu, value >= 2147483648.0);
        }
        default: { return bitcast<u32>(i32(round(bounded(bits, dtype)))); }
    }
}

// pack2x16float may round in another way.
fn half_of(bits: u32) -> u32 {
    let sign = (bits >> 16u) & 0x8000u;
    let size = bits & 0x7fffffffu;
    if size > 0x7f800000u {
        return sign | 0x7e00u;
    }
    // These values are at least halfway from the largest half to the next power of two.
    if size >= 0x477ff000u {
        return sign | 0x7c00u;
    }
    // A subnormal half is a multiple of 2^-24. Adding 0.5 rounds to such a multiple.
    if size < 0x38800000u {
        return sign | (bitcast<u32>(bitcast<f32>(size) + 0.5) - 0x3f000000u);
    }
    return sign | ((size - 0x38000000u + 0xfffu + ((size >> 13u) & 1u)) >> 13u);
}

// Returns an f32 as the words of an f64, the low word first.
fn f64_of(bits: u32) -> vec2<u32> {
    let sign = bits & 0x80000000u;
    let exponent = (bits >> 23u) & 255u;
    var mantissa = bits & 0x7fffffu;
    var high = (exponent + 896u) << 20u;
    if exponent == 255u {
        high = 0x7ff00000u;
    } else if exponent == 0u && mantissa == 0u {
        high = 0u;
    } else if exponent == 0u {
        let lead = firstLeadingBit(mantissa);
        high = (lead + 874u) << 20u;
        mantissa = (mantissa << (23u - lead)) & 0x7fffffu;
    }
    return vec2(mantissa << 29u, sign | high | (mantissa >> 3u));
}
