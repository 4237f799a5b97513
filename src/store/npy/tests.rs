//! Tests of files as numpy writes them, and of damaged files.

use super::*;
use crate::openings::assert_refused;

fn file(header: &str, data: &[u8]) -> tempfile::NamedTempFile {
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend(u16::try_from(header.len() + 1).unwrap().to_le_bytes());
    bytes.extend(header.bytes().chain([b'\n']).chain(data.iter().copied()));
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    file
}

#[test]
fn orders_of_axes_and_of_bytes() {
    // The elements 10, 11, ... in shape 2 x 3 x 2, in C order.
    let header = |descr: &str, fortran: &str| {
        format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': (2, 3, 2), }}")
    };
    let c: Vec<i16> = (10..22).collect();
    let fortran: Vec<i16> = vec![10, 16, 12, 18, 14, 20, 11, 17, 13, 19, 15, 21];
    let bytes =
        |values: &[i16], of: fn(i16) -> [u8; 2]| values.iter().copied().flat_map(of).collect::<Vec<_>>();
    let files = [
        file(&header("<i2", "False"), &bytes(&c, i16::to_le_bytes)),
        file(&header(">i2", "False"), &bytes(&c, i16::to_be_bytes)),
        file(&header("<i2", "True"), &bytes(&fortran, i16::to_le_bytes)),
        file(&header(">i2", "True"), &bytes(&fortran, i16::to_be_bytes)),
    ];
    for file in &files {
        let array = NpyArray::open(file.path()).unwrap();
        assert_eq!((array.dtype(), array.shape()), (StoredType::I16, &[2, 3, 2][..]));
        let bytes = array.read_chunk(&[0, 0, 0]).unwrap().bytes;
        assert_eq!(bytemuck::pod_collect_to_vec::<u8, i16>(&bytes), c);
    }
}

#[test]
fn several_chunks() {
    // An array of 300 x 7,000 bytes has three chunks along either axis.
    let data: Vec<u8> = (0..300 * 7000u32).map(|i| (i % 251) as u8).collect();
    for (fortran, chunk, at) in [("False", [149, 7000], [2, 0]), ("True", [300, 3495], [0, 2])] {
        let header = format!("{{'descr': '|u1', 'fortran_order': {fortran}, 'shape': (300, 7000), }}");
        let file = file(&header, &data);
        let array = NpyArray::open(file.path()).unwrap();
        assert_eq!(array.chunk_shape(), chunk);
        let bytes = array.read_chunk(&at).unwrap().bytes;
        // The element in the second row and the third column of the last chunk.
        let [row, column] = [at[0] * chunk[0] + 1, at[1] * chunk[1] + 2];
        let place = if fortran == "True" { column * 300 + row } else { row * 7000 + column };
        assert_eq!(u64::from(bytes[usize::try_from(chunk[1] + 2).unwrap()]), place % 251);
    }
}

/// Lines of 18,000 bytes are split into two chunks.
#[test]
fn parts_of_lines() {
    let data: Vec<u8> = (0..70 * 9000u32).flat_map(|i| ((i % 65_521) as u16).to_le_bytes()).collect();
    for (fortran, shape, chunk) in [("False", [70, 9000u64], [64, 8192u64]), ("True", [9000, 70], [8192, 64])]
    {
        let [rows, columns] = shape;
        let text = format!("'fortran_order': {fortran}, 'shape': ({rows}, {columns}), }}");
        let file = file(&format!("{{'descr': '<u2', {text}"), &data);
        let array = NpyArray::open(file.path()).unwrap();
        assert_eq!(array.chunk_shape(), chunk);
        for index in [[0, 0], [0, 1], [1, 0], [1, 1]] {
            let read = array.read_chunk(&index).unwrap();
            let values: Vec<u16> = bytemuck::pod_collect_to_vec(&read.bytes);
            let extents = [0, 1].map(|axis| chunk[axis].min(shape[axis] - index[axis] * chunk[axis]));
            assert_eq!(read.stored, extents[0] * extents[1] * 2);
            for (i, j) in (0..extents[0]).flat_map(|i| (0..extents[1]).map(move |j| (i, j))) {
                let [row, column] = [index[0] * chunk[0] + i, index[1] * chunk[1] + j];
                let place = if fortran == "True" { column * rows + row } else { row * columns + column };
                assert_eq!(u64::from(values[to_usize(i * chunk[1] + j)]), place % 65_521);
            }
        }
    }
}

#[test]
fn refused() {
    let shaped = |descr: &str, shape: &str| {
        file(&format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"), &[0; 12])
    };
    for (file, why) in [
        (shaped("<c8", "(1,)"), "no real numbers"),
        (shaped("|S4", "(1,)"), "no real numbers"),
        (shaped("<f4", "(4,)"), "too few"),
        (shaped("<f8", "(4294967296, 4294967296, 2)"), "too few"),
        (shaped("<f4", "()"), "no axes"),
        // The last axis has no elements but the other extents are too large; then an array with more axes than numpy allows.
        (shaped("<f8", "(1099511627776, 1099511627776, 0)"), "too few"),
        (shaped("<f4", &format!("({})", "1, ".repeat(65))), "too few"),
    ] {
        assert_refused(NpyArray::open(file.path()), &[why]);
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    for bytes in [
        &b"not one"[..],
        b"not one of them",
        b"\x93NUMPY\x04\x00\x02\x00{}",
        b"\x93NUMPY\x02\x00\x02\x00",
        b"\x93NUMPY\x03\x00\xff\xff\xff\xff{}",
        b"\x93NUMPY\x01\x00\x02\x00{}",
        b"\x93NUMPY\x01\x00\x39\x00{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': ()}",
    ] {
        std::fs::write(file.path(), bytes).unwrap();
        let error = NpyArray::open(file.path()).unwrap_err();
        assert!(matches!(error, Error::Store { .. }), "{error}");
    }
    assert!(matches!(NpyArray::open(file.path().join("none")), Err(Error::Io { .. })));
    // Like numpy, this reads no header of more than 10,000 bytes.
    for (bytes, is_read) in [(10_000u32, true), (10_001, false), (1 << 29, false)] {
        let mut header = b"\x93NUMPY\x02\x00".to_vec();
        header.extend(bytes.to_le_bytes());
        header.extend(b"{'descr': '<f4', 'fortran_order': False, 'shape': (0,), }");
        header.resize(10_012, b' ');
        std::fs::write(file.path(), header).unwrap();
        file.as_file().set_len(1 << 30).unwrap();
        let opened = NpyArray::open(file.path()).map_err(|error| error.to_string());
        assert!(opened.as_ref().is_ok() == is_read, "{opened:?}");
        assert!(opened.is_ok() || opened.unwrap_err().contains(&format!("has a header of {bytes} bytes")));
    }
    let folder = tempfile::tempdir().unwrap();
    assert!(NpyArray::open(folder.path()).unwrap_err().to_string().contains("is not a file"));
    // The file is truncated after it was opened.
    let file = shaped("<f4", "(3,)");
    let array = NpyArray::open(file.path()).unwrap();
    file.as_file().set_len(70).unwrap();
    assert!(matches!(array.read_chunk(&[0]), Err(Error::Chunk { .. })));
    // The array has no elements to read.
    let none = NpyArray::open(shaped("<f4", "(0, 3)").path()).unwrap();
    assert_eq!(none.chunk_shape(), [1, 3]);
}
