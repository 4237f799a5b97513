//! Tests of arrays that zarr-python and numcodecs encoded (`tests/fixtures/codecs.py`).

use std::io::Read;

use base64::{Engine, prelude::BASE64_STANDARD};

use super::*;
use crate::to_usize;

/// An array that another program wrote.
pub(super) struct Case {
    pub(super) name: String,
    pub(super) files: Vec<(String, Vec<u8>)>,
    /// Its elements, little-endian.
    pub(super) elements: Vec<u8>,
}

pub(super) fn cases() -> Vec<Case> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/codecs.json");
    let cases: Vec<Value> = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let bytes = |text: &Value| BASE64_STANDARD.decode(text.as_str().unwrap()).unwrap();
    let files = |case: &Value| {
        let files = case["files"].as_object().unwrap().iter();
        files.map(|(key, text)| (key.clone(), bytes(text))).collect()
    };
    let case = |case: &Value| Case {
        name: case["name"].as_str().unwrap().to_owned(),
        files: files(case),
        elements: bytes(&case["elements"]),
    };
    cases.iter().map(case).collect()
}

/// Reads all chunks, and compares them with `case` if `same` is true.
fn read(scratch: &Scratch, case: &Case, same: bool) -> crate::Result<()> {
    let array = ZarrArray::open(scratch.path(), "", MissingChunk::Fill)?;
    let (size, shape) = (array.dtype().size(), [0, 1].map(|axis| to_usize(array.shape()[axis])));
    let chunks = [0, 1].map(|axis| to_usize(array.chunk_shape()[axis]));
    for row in 0..shape[0].div_ceil(chunks[0]) {
        for column in 0..shape[1].div_ceil(chunks[1]) {
            let chunk = array.read_chunk(&[row as u64, column as u64])?.bytes;
            assert_eq!(chunk.len(), chunks[0] * chunks[1] * size);
            for (at, element) in chunk.chunks(size).enumerate().filter(|_| same) {
                let (i, j) = (row * chunks[0] + at / chunks[1], column * chunks[1] + at % chunks[1]);
                if i < shape[0] && j < shape[1] {
                    let mut expected = case.elements[(i * shape[1] + j) * size..][..size].to_vec();
                    if cfg!(target_endian = "big") {
                        expected.reverse();
                    }
                    assert_eq!(element, expected, "{} [{i}, {j}]", case.name);
                }
            }
        }
    }
    Ok(())
}

#[test]
fn every_codec_of_numcodecs() {
    for case in &cases() {
        let scratch = Scratch::new();
        case.files.iter().for_each(|(key, bytes)| scratch.put(key, bytes));
        read(&scratch, case, true).unwrap_or_else(|error| panic!("{}: {error}", case.name));
    }
}

/// Each byte of a chunk is changed in three ways: there is an error, or a chunk of the right size, whose elements are the same if a codec
/// has a checksum.
#[test]
fn damaged_chunks() {
    let mut refused = 0;
    for case in &cases() {
        let scratch = Scratch::new();
        case.files.iter().for_each(|(key, bytes)| scratch.put(key, bytes));
        let has_checksum = ["BZ2", "LZMA {}", "fletcher32"].iter().any(|name| case.name.contains(name));
        let (key, whole) = case.files.iter().find(|(key, _)| key == "0.0" || key == "c/0/0").unwrap();
        for at in 0..whole.len() {
            for damage in [1, 0x80, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] ^= damage;
                scratch.put(key, bytes);
                refused += u32::from(read(&scratch, case, has_checksum).is_err());
            }
            scratch.put(key, &whole[..at]);
            assert!(read(&scratch, case, false).is_err(), "{} of {at} bytes", case.name);
        }
    }
    assert!(refused > 1000, "{refused}");
}

/// Sizes that data claim are compared with those of the metadata before memory is taken, and so are sizes to which data grow.
#[test]
fn bombs() {
    let zeros = vec![0u8; 1 << 20];
    let mut bz2 = Vec::new();
    bzip2::read::BzEncoder::new(zeros.as_slice(), bzip2::Compression::best()).read_to_end(&mut bz2).unwrap();
    let lz4 = [&u32::MAX.to_le_bytes()[..], &[0; 20]].concat();
    // A header of `.lzma` with a dictionary of 4 GiB.
    let lzma = [&[0x5d, 0xff, 0xff, 0xff, 0xff][..], &[0xff; 8], &[0; 40]].concat();
    for (id, bytes) in [("bz2", bz2), ("lz4", lz4), ("lzma", lzma)] {
        let scratch = Scratch::new();
        scratch.array("", &v2(&[12], &[12], "|i1", json!({ "id": id })), &[("0", bytes)]);
        let array = ZarrArray::open(scratch.path(), "", MissingChunk::Error).unwrap();
        assert!(array.read_chunk(&[0]).is_err(), "{id}");
    }
}

#[test]
fn filters_that_do_not_fit() {
    for (filter, dtype, why) in [
        (json!({ "id": "delta", "dtype": "<i4" }), "<i2", "not for numbers of 2 bytes"),
        (json!({ "id": "packbits" }), "<i2", "not for numbers of 2 bytes"),
        (json!({ "id": "delta", "dtype": "<<i2" }), "<i2", "usable `dtype`"),
        (json!({ "id": "delta", "dtype": "b1" }), "|b1", "usable `dtype`"),
        (json!({ "id": "delta" }), "<i2", "usable `dtype`"),
        (json!({ "id": "fixedscaleoffset", "dtype": "<i2", "offset": 0 }), "<i2", "usable `scale`"),
        (
            json!({ "id": "astype", "decode_dtype": "<i2", "encode_dtype": "|b1" }),
            "<i2",
            "usable `encode_dtype`",
        ),
        (json!({ "id": "shuffle", "elementsize": 0 }), "<i2", "usable `elementsize`"),
        (json!({ "id": "lzma", "format": 3 }), "<i2", "without a header"),
        (json!({ "id": "categorize" }), "<i2", "`categorize` is not supported"),
    ] {
        let scratch = Scratch::new();
        let mut metadata = v2(&[12], &[12], dtype, Value::Null);
        metadata["filters"] = json!([filter]);
        scratch.array("", &metadata, &[]);
        let error = ZarrArray::open(scratch.path(), "", MissingChunk::Error).unwrap_err().to_string();
        assert!(error.contains(why), "{filter}: {error}");
    }
}
