//! Tests of reading valid chunks.

use super::*;
use crate::{
    StoredType,
    openings::{assert_refused, elements},
    store::insert_block,
};

/// Returns the bytes of a chunk of an array that has no other.
fn decoded(metadata: &Value, (key, encoded): (&str, Vec<u8>), index: &[u64]) -> Vec<u8> {
    let chunk = Scratch::of(metadata, &[(key, encoded)]).strict().read_chunk(index).unwrap();
    assert!(chunk.stored > 0);
    chunk.bytes
}

#[test]
fn every_blosc_codec() {
    use BloscCompressor as C;
    use BloscShuffleMode as S;
    let mut numbers = Numbers(1);
    let plain = compressible(&mut numbers, 40_000);
    let metadata = |n: u64, dtype: &str| v2(&[n], &[n], dtype, blosc_meta());
    for compressor in [C::Zstd, C::LZ4, C::LZ4HC, C::Zlib, C::BloscLZ] {
        for shuffle in [S::NoShuffle, S::Shuffle, S::BitShuffle] {
            for size in [1, 2, 4, 8] {
                let encoded = blosc_with(&plain, compressor, shuffle, size);
                let found = decoded(&metadata(40_000, "|i1"), ("0", encoded), &[0]);
                assert_eq!(found, plain, "{compressor:?} {shuffle:?} {size}");
            }
        }
    }
    let incompressible: Vec<u8> = (0..5000).map(|_| numbers.next().to_le_bytes()[3]).collect();
    let encoded = blosc(&incompressible);
    assert_eq!(decoded(&metadata(5000, "|u1"), ("0", encoded), &[0]), incompressible);
}

/// Our own bit unshuffle gives the same result as c-blosc.
#[test]
fn bit_shuffle_agrees_with_blosc() {
    let mut numbers = Numbers(5);
    // Lengths around the step of 128 bytes, lengths not divisible by 8, and lengths of several blocks with a short last one.
    let lengths = (1..300).chain([4096, 4097, 65_535, 1 << 20, (1 << 20) + 24, 1_500_000, 1_500_004]);
    for n in lengths {
        let plain = compressible(&mut numbers, n);
        let encoded = blosc(&plain);
        let size = guard::Size::Exactly(n);
        let (mut decoded, planes) =
            codec::BytesCodec::Blosc { block: 1 << 20 }.decode(encoded.as_slice().into(), size).unwrap();
        if let Some(planes) = planes {
            // Bit by bit, the planes are as documented.
            let mut at = 0;
            for block in planes.blocks(&decoded) {
                let Some(block) = block else { break };
                for i in 0..8 * block[0].len() {
                    let bit = |b: usize| (block[b][i / 8] >> (i % 8) & 1) << b;
                    assert_eq!((0..8).fold(0, |byte, b| byte | bit(b)), plain[at + i], "{n} bytes, {i}");
                }
                at += 8 * block[0].len();
            }
            planes.undo(decoded.to_mut()).unwrap();
        }
        assert!(*decoded == *plain, "{n} bytes");
    }
}

#[test]
fn every_stream_codec() {
    let plain = compressible(&mut Numbers(3), 3000);
    let bytes = json!({ "name": "bytes" });
    let named =
        |name: &str, configuration: Value| json!([bytes, { "name": name, "configuration": configuration }]);
    let cases = [
        (json!([bytes]), plain.clone()),
        (json!([bytes, "crc32c"]), crc(plain.clone())),
        (json!([bytes, zstd_codec()]), zstd(&plain)),
        (json!([bytes, zstd_codec()]), zstd_stream(&plain)),
        (json!([bytes, zstd_codec()]), [zstd(&plain[..7]), zstd_stream(&plain[7..])].concat()),
        (named("gzip", json!({ "level": 6 })), gzip(&plain)),
        (named("gzip", json!({ "level": 6 })), [gzip(&plain[..7]), gzip(&plain[7..])].concat()),
        (named("numcodecs.zlib", json!({ "level": 6 })), zlib(&plain)),
        (json!([bytes, zstd_codec(), "crc32c"]), crc(zstd(&plain))),
        (
            json!([bytes, { "name": "gzip", "configuration": { "level": 1 } }, zstd_codec()]),
            zstd_stream(&gzip(&plain)),
        ),
    ];
    for (codecs, encoded) in cases {
        let metadata = v3(&[3000], &[3000], "int8", codecs.clone());
        assert_eq!(decoded(&metadata, ("c/0", encoded), &[0]), plain, "{codecs}");
    }
    for (id, encoded) in [("zstd", zstd(&plain)), ("gzip", gzip(&plain)), ("zlib", zlib(&plain))] {
        // A reader ignores the compression level; -1 is the compressor's default.
        for level in [3, -1, 100] {
            let metadata = v2(&[3000], &[3000], "|i1", json!({ "id": id, "level": level }));
            assert_eq!(decoded(&metadata, ("0", encoded.clone()), &[0]), plain, "{id}, {level}");
        }
    }
}

#[test]
fn an_axis_of_no_elements_may_have_chunks_of_none() {
    for (metadata, shape, chunks) in [
        (v2(&[0, 5], &[0, 2], "|i1", Value::Null), &[0, 5][..], &[1, 2][..]),
        (v3(&[0, 5], &[0, 2], "int8", bytes()), &[0, 5], &[1, 2]),
        (v2(&[0, 5, 2], &[1000, 5, 2], "|i1", blosc_meta()), &[0, 5, 2], &[1000, 5, 2]),
    ] {
        let scratch = Scratch::of(&metadata, &[]);
        let array = scratch.strict();
        assert_eq!((array.shape(), array.chunk_shape()), (shape, chunks));
        assert!(array.read_chunk(&vec![0; shape.len()]).is_err());
    }
}

#[test]
fn every_type_in_both_byte_orders() {
    let types = [
        ("b1", StoredType::Bool),
        ("i1", StoredType::I8),
        ("u1", StoredType::U8),
        ("i2", StoredType::I16),
        ("u2", StoredType::U16),
        ("i4", StoredType::I32),
        ("u4", StoredType::U32),
        ("i8", StoredType::I64),
        ("u8", StoredType::U64),
        ("f2", StoredType::F16),
        ("f4", StoredType::F32),
        ("f8", StoredType::F64),
    ];
    for (name, dtype) in types {
        let size = dtype.size();
        let native: Vec<u8> = (0..3 * size).map(|i| u8::try_from(i % 2).unwrap()).collect();
        let swapped: Vec<u8> = native.chunks(size).flat_map(|e| e.iter().rev().copied()).collect();
        for order in if size == 1 { &["|"][..] } else { &["<", ">"] } {
            let native_order = (*order == "<") != cfg!(target_endian = "big") || size == 1;
            let stored = if native_order { &native } else { &swapped };
            let metadata = v2(&[3], &[3], &format!("{order}{name}"), Value::Null);
            let scratch = Scratch::of(&metadata, &[("0", stored.clone())]);
            let array = ZarrArray::open(scratch.path(), "/a/", MissingChunk::Error).unwrap();
            assert_eq!((array.dtype(), array.shape(), array.chunk_shape()), (dtype, &[3][..], &[3][..]));
            assert_eq!(array.read_chunk(&[0]).unwrap().bytes, native, "{order}{name}");
        }
    }
}

#[test]
fn order_f_and_transpose() {
    // Element [i, j, k] of [2, 3, 2] has the value 6 i + 2 j + k, hence the decoded chunk is 0, 1, ..., 11.
    let plain: Vec<u8> = (0..12_u16).flat_map(u16::to_ne_bytes).collect();
    // The chunk whose outermost axis is the first of these, and whose innermost axis is the last.
    let stored = |axes: [usize; 3]| -> Vec<u8> {
        let ([m, n, l], step) = (axes.map(|axis| [2, 3, 2][axis]), axes.map(|axis| [6, 2, 1][axis]));
        let places = (0..m).flat_map(|i| (0..n).flat_map(move |j| (0..l).map(move |k| [i, j, k])));
        places.flat_map(|[i, j, k]| [i * step[0] + j * step[1] + k * step[2], 0_u8]).collect()
    };
    let mut metadata = v2(&[2, 3, 2], &[2, 3, 2], "<i2", Value::Null);
    metadata["order"] = "F".into();
    assert_eq!(decoded(&metadata, ("0.0.0", stored([2, 1, 0])), &[0, 0, 0]), plain);

    let turn = json!({ "name": "transpose", "configuration": { "order": [1, 2, 0] } });
    let metadata = v3(&[2, 3, 2], &[2, 3, 2], "int16", json!([turn, little_endian()[0]]));
    assert_eq!(decoded(&metadata, ("c/0/0/0", stored([1, 2, 0])), &[0, 0, 0]), plain);
}

/// Returns the elements of an array of one shard of [4, 6], read chunk by chunk, which are those of the whole shard.
fn in_shard(metadata: &Value, shard: Vec<u8>) -> Vec<u8> {
    let scratch = Scratch::of(metadata, &[("c/0/0", shard)]);
    let array = Arc::new(scratch.strict());
    let all = elements::<u8>(array.clone());
    let mut out = vec![0; 24];
    for (i, j) in (0..2).flat_map(|i| [(i, 0), (i, 1)]) {
        let chunk = array.read_chunk(&[i as u64, j as u64]).unwrap().bytes;
        insert_block(&mut out, &[4, 6], &[2 * i, 3 * j], &chunk, &[2, 3], 1);
    }
    assert_eq!(out, all);
    out
}

#[test]
fn shards() {
    let inner =
        |i: u8, j: u8| -> Vec<u8> { (0..6).map(|at| (2 * i + at / 3) * 6 + 3 * j + at % 3).collect() };
    let plain: Vec<u8> = (0..24).collect();
    let chunks = [inner(0, 0), inner(0, 1), inner(1, 0), inner(1, 1)].map(Some);
    let metadata = |codecs: Value, with_crc: bool, location: &str| {
        let mut codecs = in_shards(&[2, 3], codecs, index_codecs(with_crc));
        codecs[0]["configuration"]["index_location"] = location.into();
        v3(&[4, 6], &[4, 6], "uint8", codecs)
    };
    for with_crc in [false, true] {
        assert_eq!(in_shard(&metadata(bytes(), with_crc, "end"), shard(&chunks, with_crc)), plain);
    }
    let compressed = chunks.clone().map(|chunk| chunk.map(|chunk| crc(zstd(&chunk))));
    let codecs = json!([{ "name": "bytes" }, zstd_codec(), "crc32c"]);
    assert_eq!(in_shard(&metadata(codecs, true, "end"), shard(&compressed, true)), plain);

    // If the index comes first, offsets still count from the start of the shard.
    let mut first = Vec::new();
    for at in 0..4_u64 {
        first.extend((64 + 6 * at).to_le_bytes());
        first.extend(6_u64.to_le_bytes());
    }
    first.extend(chunks.iter().flatten().flatten());
    assert_eq!(in_shard(&metadata(bytes(), false, "start"), first), plain);
}

#[test]
fn missing_inner_chunks_follow_the_policy() {
    let codecs = in_shards(&[2, 3], bytes(), index_codecs(true));
    let mut metadata = v3(&[4, 6], &[4, 6], "uint8", codecs);
    metadata["fill_value"] = 9.into();
    let chunks = [Some(vec![1; 6]), None, Some(vec![2; 6]), None];
    let scratch = Scratch::of(&metadata, &[("c/0/0", shard(&chunks, true))]);
    let (filled, strict) = (scratch.filled(), scratch.strict());
    for (index, element) in [([0, 0], 1), ([0, 1], 9), ([1, 0], 2), ([1, 1], 9)] {
        assert_eq!(filled.read_chunk(&index).unwrap().bytes, [element; 6]);
    }
    assert_eq!(strict.read_chunk(&[0, 0]).unwrap().bytes, [1; 6]);
    assert_refused(strict.read_chunk(&[0, 1]), &["chunk [0, 1]", "missing"]);
}

#[test]
fn missing_chunks_follow_the_policy() {
    let mut metadata = v2(&[4, 3], &[2, 3], "<i2", Value::Null);
    metadata["fill_value"] = (-2).into();
    let scratch = Scratch::of(&metadata, &[]);
    let filled = scratch.filled().read_chunk(&[1, 0]).unwrap();
    assert_eq!((filled.bytes, filled.stored), ((-2_i16).to_ne_bytes().repeat(6), 0));
    let missing = scratch.strict().read_chunk(&[1, 0]);
    let Err(Error::Chunk { array: name, index, why, .. }) = missing else { panic!("read it") };
    assert!(
        Path::new(&*name).ends_with("a") && *index == [1, 0] && why.contains("missing"),
        "{name} {index:?} {why}"
    );
}

#[test]
fn keys_of_every_kind() {
    let chunk = || vec![5; 4];
    for (separator, key) in [(".", "1.0"), ("/", "1/0")] {
        let mut metadata = v2(&[3, 2], &[2, 2], "|i1", Value::Null);
        metadata["dimension_separator"] = separator.into();
        assert_eq!(decoded(&metadata, (key, chunk()), &[1, 0]), chunk());
    }
    for (name, separator, key) in [("default", "/", "c/1/0"), ("default", ".", "c.1.0"), ("v2", ".", "1.0")] {
        let mut metadata = v3(&[3, 2], &[2, 2], "int8", bytes());
        metadata["chunk_key_encoding"] = json!({ "name": name, "configuration": { "separator": separator } });
        assert_eq!(decoded(&metadata, (key, chunk()), &[1, 0]), chunk());
    }
}

/// Chunks with the other separator are found, which `looked_for` reports; after correct names the other separator is not tried.
#[test]
fn keys_of_the_other_separator() {
    for (metadata, keys) in [
        (v2(&[4, 2], &[2, 2], "|i1", Value::Null), ["1/0", "0/0"]),
        (v3(&[4, 2], &[2, 2], "int8", bytes()), ["c.1.0", "c.0.0"]),
    ] {
        let scratch = Scratch::of(&metadata, &[(keys[0], vec![5; 4])]);
        let array = scratch.filled();
        assert_eq!(array.looked_for(), LookedFor::default());
        let chunk = |index: u64| array.read_chunk(&[index, 0]).unwrap().bytes;
        assert_eq!((chunk(0), chunk(1), chunk(0)), (vec![0; 4], vec![5; 4], vec![0; 4]));
        assert_eq!(array.looked_for(), LookedFor { there: true, absent: 1, other_names: true });
        // A chunk with the name that the metadata give takes precedence.
        let right = keys[1].replace(['/', '.'], if keys[1].contains('/') { "." } else { "/" });
        scratch.array("a", &metadata, &[(keys[1], vec![6; 4]), (&right, vec![7; 4])]);
        assert_eq!(chunk(0), vec![7; 4]);
    }
    let scratch = Scratch::of(&v2(&[4, 2], &[2, 2], "|i1", Value::Null), &[("0.0", vec![5; 4])]);
    let array = scratch.filled();
    for index in [[0, 0], [1, 0], [1, 0]] {
        array.read_chunk(&index).unwrap();
    }
    assert_eq!(array.looked_for(), LookedFor { there: true, absent: 1, other_names: false });
    let none = scratch.filled();
    none.read_chunk(&[1, 0]).unwrap();
    assert_eq!(none.looked_for(), LookedFor { there: false, absent: 1, other_names: false });
}

#[test]
fn indices_outside_the_grid_are_errors() {
    let scratch = Scratch::of(&v2(&[3, 2], &[2, 2], "|i1", Value::Null), &[("0.0", vec![0; 4])]);
    let array = scratch.filled();
    for index in [&[2, 0][..], &[0, 1], &[0], &[], &[u64::MAX, u64::MAX]] {
        assert!(matches!(array.read_chunk(index), Err(Error::Chunk { .. })), "{index:?}");
    }
}
