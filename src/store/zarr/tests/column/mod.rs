//! Tests of columns of strings and integers.

mod gaps;

use super::*;
use crate::{
    Budget, Result,
    openings::assert_refused,
    store::{Column, Node},
};

type LeftOut<'a> = &'a dyn Fn(u64, &str) -> bool;

const NEVER: LeftOut = &|_, _| false;

/// Accepts missing strings in any column of the array.
const DOTS: LeftOut = &|_, fill| ["", "."].contains(&fill);

fn read(scratch: &Scratch, left_out: LeftOut) -> Result<Column> {
    read_within(scratch, left_out, &Budget::default())
}

fn read_within(scratch: &Scratch, left_out: LeftOut, memory: &Budget) -> Result<Column> {
    let storage = Arc::new(Folder::new(scratch.path())) as Arc<dyn Storage>;
    Ok(Column::read_in(&storage, "a", left_out, memory)?.expect("it is there"))
}

/// Changes the type to version 3 UTF-32: strings of at most one letter.
fn letters(mut metadata: Value) -> Value {
    metadata["data_type"] = json!({ "name": "fixed_length_utf32", "configuration": { "length_bytes": 4 } });
    metadata["fill_value"] = "".into();
    metadata
}

/// Returns the strings of a row.
fn cells(column: &Column, row: u64) -> Vec<String> {
    (0..).map_while(|place| column.text(row, place)).map(String::from).collect()
}

#[test]
fn what_stands_at_a_path() {
    let scratch = Scratch::of(&v2(&[1], &[1], "<i4", Value::Null), &[]);
    scratch.put("g/.zgroup", r#"{"zarr_format":2}"#);
    scratch.put("h/zarr.json", r#"{"zarr_format":3,"node_type":"group"}"#);
    scratch.put("h/b/zarr.json", v3(&[1], &[1], "int8", bytes()).to_string());
    scratch.put("k/zarr.json", r#"{"zarr_format":3,"node_type":"table"}"#);
    let folder = Folder::new(scratch.path());
    for (path, node) in [
        ("a", Node::Array),
        ("g", Node::Group),
        ("h", Node::Group),
        ("h/b", Node::Array),
        ("", Node::Absent),
        ("g/x", Node::Absent),
        ("a/.zarray/x", Node::Absent),
    ] {
        assert_eq!(Node::at(&folder, path).unwrap(), node, "{path}");
    }
    assert!(matches!(Node::at(&folder, "k"), Err(Error::Store { .. })));
    let storage = Arc::new(folder) as Arc<dyn Storage>;
    // Nothing outside the folder is read, whatever exists there.
    for path in ["../a", "g/../a", "./a", "g\\a", "a\0"] {
        let inner = Arc::new(Folder::new(scratch.path().join("g"))) as Arc<dyn Storage>;
        let column = Column::read_in(&inner, path, NEVER, &Budget::default()).map(|_| Node::Array);
        for found in [Node::at(&*inner, path), column] {
            let error = found.unwrap_err().to_string();
            let path = crate::plain(path);
            assert!(error.contains(&format!("`{path}` is not a path within the store")), "{error}");
        }
    }
    assert!(Column::read_in(&storage, "x", NEVER, &Budget::default()).unwrap().is_none());
    assert_refused(Column::read_in(&storage, "g", NEVER, &Budget::default()), &["is a group"]);
}

/// Writes a column of 5 rows, in chunks of 3 rows and, if it has two axes, of 2 of its 5 columns; each element encodes its position.
fn numbered(axes: usize, strings: bool) -> Scratch {
    let (shape, chunks) = (&[5, 5][..axes], &[3, 2][..axes]);
    let metadata = v3(shape, chunks, "uint32", little_endian());
    let scratch = Scratch::of(&if strings { letters(metadata) } else { metadata }, &[]);
    let [places, width] = if axes == 1 { [1_u32, 1] } else { [5, 2] };
    for (down, right) in (0..2).flat_map(|down| (0..places.div_ceil(width)).map(move |right| (down, right))) {
        let key = if axes == 1 { format!("a/c/{down}") } else { format!("a/c/{down}/{right}") };
        let rows = 3 * down..3 * down + 3;
        let cells = rows.flat_map(|row| (right * width..(right + 1) * width).map(move |i| number(row, i)));
        scratch.put(&key, cells.flat_map(u32::to_le_bytes).collect::<Vec<u8>>());
    }
    scratch
}

fn number(row: u32, place: u32) -> u32 {
    u32::from('A') + 6 * row + place
}

#[test]
fn rows_across_chunks() {
    let letter = |row, place| char::from_u32(number(row, place)).unwrap().to_string();
    for (axes, places) in [(1, 1), (2, 5)] {
        let [text, numbers] = [true, false].map(|strings| read(&numbered(axes, strings), NEVER).unwrap());
        assert_eq!((text.rows(), text.path()), (5, "a"));
        for row in 0..5 {
            let expected: Vec<_> = (0..places).map(|place| letter(row, place)).collect();
            assert_eq!(cells(&text, row.into()), expected, "{axes} axes, {row}");
            assert_eq!(numbers.integer(row.into()).unwrap(), i64::from(number(row, 0)));
            assert_eq!(cells(&numbers, row.into())[0], number(row, 0).to_string());
        }
        assert!(text.strings().eq((0..5).map(|row| letter(row, 0))));
        for row in [5, u64::MAX] {
            assert_eq!(text.text(row, 0), None);
            let error = numbers.integer(row).unwrap_err();
            assert!(matches!(error, Error::Argument { name: "row", .. }), "{error}");
            assert!(error.to_string().contains("is not one of the 5 rows of"), "{error}");
        }
        assert!(text.integer(0).unwrap_err().to_string().contains("holds strings, expected integers"));
    }
}

#[test]
fn shapes_that_are_no_columns() {
    for (shape, why) in [
        (&[][..], "not that of a column"),
        (&[2, 2, 2], "not that of a column"),
        (&[2, (1 << 16) + 1], "not that of a column"),
        (&[2, 0], "rows are empty"),
    ] {
        let metadata = v2(shape, &vec![1; shape.len()], "<i4", Value::Null);
        assert_refused(read(&Scratch::of(&metadata, &[]), NEVER), &[why]);
    }
    for shape in [&[0][..], &[0, 0], &[0, 2]] {
        let empty = Scratch::of(&v2(shape, &vec![1; shape.len()], "<i4", Value::Null), &[]);
        assert_eq!(read(&empty, NEVER).unwrap().strings().count(), 0);
    }
}

#[test]
fn other_numbers_are_errors() {
    for (dtype, bytes, why) in [
        ("|b1", vec![1], "no integers"),
        ("<f4", vec![0; 4], "no integers"),
        ("<u8", vec![255; 8], "above 2^63"),
    ] {
        let scratch = Scratch::of(&v2(&[1], &[1], dtype, Value::Null), &[("0", bytes)]);
        let error = read(&scratch, NEVER).unwrap_err();
        assert!(matches!(&error, Error::Chunk { .. }) && error.to_string().contains(why), "{error}");
    }
}

#[test]
fn damaged_strings() {
    let (metadata, good) = text(&["ab", "c"]);
    let n = good.len();
    let mut long = good.clone();
    long[4] = 200;
    let mut many = good.clone();
    many[0] = 3;
    let mut not_utf8 = good.clone();
    not_utf8[8] = 0xff;
    let mut overflow = good.clone();
    overflow[4..8].copy_from_slice(&[255; 4]);
    for bytes in [vec![], good[..n - 1].to_vec(), [&good[..], &[0]].concat(), long, many, not_utf8, overflow]
    {
        let scratch = Scratch::of(&metadata, &[("0", bytes.clone())]);
        let error = read(&scratch, NEVER).unwrap_err();
        assert!(matches!(&error, Error::Chunk { index, .. } if **index == [0]), "{bytes:?}: {error}");
    }
    let claim = u32::MAX.to_le_bytes().to_vec();
    let mut huge = metadata.clone();
    huge["shape"] = json!([u32::MAX]);
    huge["chunks"] = json!([u32::MAX]);
    let scratch = Scratch::of(&huge, &[("0", claim)]);
    assert!(read(&scratch, NEVER).is_err());
}

#[test]
fn strings_of_fixed_length() {
    let strings = |scratch: &Scratch| {
        read(scratch, NEVER).map(|column| column.strings().map(String::from).collect::<Vec<_>>())
    };
    let utf32 = |text: &str| -> Vec<u8> {
        let mut units: Vec<u32> = text.chars().map(u32::from).collect();
        units.resize(3, 0);
        units.into_iter().flat_map(u32::to_be_bytes).collect()
    };
    let chunk = [utf32("é1"), utf32("𝒳yz")].concat();
    let scratch = Scratch::of(&v2(&[2], &[2], ">U3", Value::Null), &[("0", chunk.clone())]);
    assert_eq!(strings(&scratch).unwrap(), ["é1", "𝒳yz"]);
    let mut broken = chunk;
    broken[0] = 1;
    scratch.put("a/0", broken);
    assert!(strings(&scratch).unwrap_err().to_string().contains("UTF-32"));

    let mut metadata = v3(&[2], &[2], "r16", bytes());
    metadata["data_type"] =
        json!({ "name": "null_terminated_bytes", "configuration": { "length_bytes": 2 } });
    metadata["fill_value"] = "".into();
    let scratch = Scratch::of(&metadata, &[("c/0", b"x\0yz".to_vec())]);
    assert_eq!(strings(&scratch).unwrap(), ["x", "yz"]);

    let scratch =
        Scratch::of(&v2(&[2, 2], &[2, 2], "|S3", Value::Null), &[("0.0", b"A\0\0xyzB\0\0ab\0".to_vec())]);
    assert_eq!(strings(&scratch).unwrap(), ["A", "B"]);
    let column = read(&scratch, NEVER).unwrap();
    assert_eq!([cells(&column, 0), cells(&column, 1)], [["A", "xyz"], ["B", "ab"]]);
}

/// A column takes at most half of the memory, whatever sizes its metadata and chunks claim.
#[test]
fn memory_bounds_columns() {
    const MEMORY: u64 = 1 << 20;
    let over = |result: Result<usize>, least: u64| match result {
        Err(Error::Budget { budget: MEMORY, minimum, given: true, .. }) => {
            assert!(minimum >= least, "{minimum}");
        }
        other => panic!("{other:?}"),
    };
    let memory = Budget { host: Some(MEMORY), ..Budget::default() };
    let bytes = |scratch: &Scratch| {
        let column = read_within(scratch, DOTS, &memory);
        if let Err(Error::Budget { minimum, .. }) = column {
            let enough = read_within(scratch, DOTS, &Budget { host: Some(minimum), ..memory });
            assert!(!matches!(enough, Err(Error::Budget { .. })), "{minimum}: {enough:?}");
        }
        let column = column?;
        Ok(column.strings().map(|text| text.len()).sum())
    };
    let (mut metadata, chunk) = text(&["A", "C", "G"]);
    assert_eq!(bytes(&Scratch::of(&metadata, &[("0", chunk)])).unwrap(), 3);
    // The maximum number of strings of a chunk, if all are empty.
    (metadata["shape"], metadata["chunks"]) = (json!([3, 1]), json!([3, 1 << 24]));
    over(bytes(&Scratch::of(&metadata, &[])), 3 << 29);
    // Numbers: the chunk's number of elements decides.
    over(bytes(&Scratch::of(&v2(&[3], &[1 << 24], "<i4", Value::Null), &[])), 1 << 28);
    // A chunk of long strings, uncompressed or compressed ...
    for stored in [true, false] {
        let (mut metadata, mut chunk) = text(&[&"A".repeat(200_000), "C", "G"]);
        if !stored {
            metadata["compressor"] = blosc_meta();
            chunk = blosc(&chunk);
        }
        over(bytes(&Scratch::of(&metadata, &[("0", chunk)])), 8 * 200_000);
    }
    // ... and many chunks, each of which is small.
    let keys: Vec<_> = (0..100).map(|i| format!("0.{i}")).collect();
    let chunks: Vec<_> = keys.iter().map(|key| (key.as_str(), vec![b'A'; 3 * 6000])).collect();
    over(bytes(&Scratch::of(&v2(&[3, 100], &[3, 1], "|S6000", Value::Null), &chunks)), MEMORY);
    let (mut metadata, chunk) = text(&[&"A".repeat(6000)]);
    metadata["shape"] = json!([100]);
    let keys: Vec<_> = (0..100).map(|i| i.to_string()).collect();
    let chunks: Vec<_> = keys.iter().map(|key| (key.as_str(), chunk.clone())).collect();
    over(bytes(&Scratch::of(&metadata, &chunks)), MEMORY);
    // No copies of the fill value are made, however long it is.
    let (mut metadata, _) = text(&["", "", ""]);
    metadata["fill_value"] = "A".repeat(100_000).into();
    assert!(matches!(bytes(&Scratch::of(&metadata, &[])), Err(Error::Chunk { .. })));
}
