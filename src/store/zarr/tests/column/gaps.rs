//! Chunks of columns that are not there.

use super::*;

/// Shards of such inner chunks of four bytes an element.
fn shards(inner: Value) -> Value {
    json!([{ "name": "sharding_indexed", "configuration": {
        "chunk_shape": inner, "codecs": little_endian(), "index_codecs": index_codecs(true),
        "index_location": "end",
    }}])
}

/// Chunks are lost where nobody said that they may be left out, or hold a fill value that is not meant.
#[test]
fn lost_chunks_are_errors() {
    let lost = |metadata: &Value, left_out| {
        let column = open(&array(metadata, &[]), left_out).unwrap();
        let error = if metadata["dtype"] == "|O" {
            column.strings(0..1).unwrap_err()
        } else {
            column.integers(0..1).unwrap_err()
        };
        assert_eq!((column.filled(), column.fill()), (0, None));
        let Error::Chunk { array, index, why } = &error else { panic!("{error}") };
        assert!(array.ends_with("/a") && **index == [0] && why.contains("missing"), "{error}");
    };
    let (names, _) = text(&["", "", ""]);
    lost(&names, LeftOut::Never);
    lost(&names, LeftOut::Below(9));
    lost(&names, LeftOut::Strings { fill: &["", "."], from: 1 });
    let mut names = names;
    names["fill_value"] = "x".into();
    lost(&names, DOTS);
    let mut numbers = v2(&[3], &[3], "<i4", Value::Null);
    lost(&numbers, LeftOut::Never);
    lost(&numbers, DOTS);
    for fill in [-1, 2] {
        numbers["fill_value"] = fill.into();
        lost(&numbers, LeftOut::Below(2));
    }
}

#[test]
fn chunks_that_were_left_out_are_filled_and_counted() {
    let mut metadata = v2(&[3], &[1], "<i4", Value::Null);
    metadata["fill_value"] = 1.into();
    let scratch = array(&metadata, &[("1", vec![0; 4])]);
    let numbers = open(&scratch, LeftOut::Below(2)).unwrap();
    assert_eq!((numbers.filled(), numbers.fill(), numbers.is_doubtful()), (0, Some(1), false));
    for _ in 0..2 {
        assert_eq!(numbers.integers(0..3).unwrap(), [1, 0, 1]);
        assert_eq!((numbers.filled(), numbers.is_doubtful()), (2, true));
    }
    assert!(numbers.is_filled_in(0..1) && !numbers.is_filled_in(1..9));
    assert_eq!(numbers.strings(0..2).unwrap(), ["1", "0"]);
    for fill in ["", "."] {
        let (mut metadata, _) = text(&["", "", ""]);
        metadata["fill_value"] = fill.into();
        let scratch = array(&metadata, &[]);
        let names = open(&scratch, DOTS).unwrap();
        assert_eq!(names.strings(0..3).unwrap(), [fill; 3]);
        assert_eq!((names.filled(), names.fill(), names.is_doubtful()), (1, None, false));
        assert!(names.integers(0..1).unwrap_err().to_string().contains("holds strings"));
    }
}

/// Chunks of zeros that came before a zero that is there can have held nothing else, where numbers never decrease.
#[test]
fn filled_integers_are_counted_once_and_doubted() {
    const LOST: u8 = u8::MAX;
    for ((numbers, doubtful), sharded) in [
        ([LOST, LOST, LOST], false),
        ([LOST, 0, 1], false),
        ([LOST, LOST, 0], false),
        ([LOST, 1, 1], true),
        ([LOST, LOST, 1], true),
        ([0, LOST, 1], true),
        ([0, 1, LOST], true),
        ([1, LOST, 0], true),
        ([1, LOST, 1], true),
    ]
    .into_iter()
    .flat_map(|case| [(case, false), (case, true)])
    {
        let inner = numbers.map(|number| (number != LOST).then(|| vec![number, 0, 0, 0]));
        let lost = inner.iter().filter(|chunk| chunk.is_none()).count() as u64;
        let scratch = if sharded {
            array(&v3(&[3], &[3], "int32", shards(json!([1]))), &[("c/0", shard(&inner, true))])
        } else {
            let chunks = ["0", "1", "2"].into_iter().zip(inner);
            let chunks: Vec<_> = chunks.filter_map(|(key, chunk)| Some((key, chunk?))).collect();
            array(&v2(&[3], &[1], "<i4", Value::Null), &chunks)
        };
        let column = open(&scratch, LeftOut::Below(2)).unwrap();
        for _ in 0..2 {
            let mut rows = 0;
            let count = &mut |_, n| {
                rows += n;
                Ok(())
            };
            column.integer_runs(count).unwrap();
            assert_eq!(column.integers(0..3).unwrap(), numbers.map(|n| i64::from(n % LOST)));
            column.forget();
            let case = format!("{numbers:?}, sharded {sharded}");
            assert_eq!((rows, column.filled(), column.is_doubtful()), (3, lost, doubtful), "{case}");
        }
    }
}

/// Chunks of further columns may be left out, and those of the first not.
#[test]
fn columns_that_are_not_there() {
    let letters_of =
        |text: &str| Some(text.chars().flat_map(|c| u32::from(c).to_le_bytes()).collect::<Vec<u8>>());
    let (first, second) = (letters_of("ACG"), letters_of("TGA"));
    for (inner, filled, from_second) in [
        ([&first, &second, &None, &None], 2, false),
        ([&first, &None, &None, &None], 3, true),
        ([&first, &second, &second, &None], 1, false),
        ([&None, &second, &None, &None], 0, false),
    ] {
        for sharded in [true, false] {
            let inner = inner.map(Clone::clone);
            let (chunk, codecs) = if sharded { (4, shards(json!([3, 1]))) } else { (1, little_endian()) };
            let chunks: Vec<_> = if sharded {
                vec![("c/0/0", shard(&inner, true))]
            } else {
                let keys = ["c/0/0", "c/0/1", "c/0/2", "c/0/3"];
                keys.into_iter().zip(inner.clone()).filter_map(|(key, chunk)| Some((key, chunk?))).collect()
            };
            let scratch = array(&letters(v3(&[3, 4], &[3, chunk], "", codecs)), &chunks);
            let column = open(&scratch, LeftOut::Strings { fill: &["", "."], from: 1 }).unwrap();
            if inner[0].is_none() {
                let error = column.strings(0..3).unwrap_err().to_string();
                let place = if sharded { "inner chunk [0, 0]" } else { "chunk [0, 0]" };
                assert!(error.contains(place) && error.contains("missing"), "{error}");
                continue;
            }
            for _ in 0..2 {
                let found = cells(&column, 1..2);
                let text = |place: usize| if inner[place].is_some() { ["C", "G"][place.min(1)] } else { "" };
                let expected: Vec<_> = (0..4).map(|i| (0, i as u64, text(i).to_owned())).collect();
                assert_eq!(found, expected, "sharded {sharded}");
                assert_eq!((column.filled(), column.is_doubtful()), (filled, false), "sharded {sharded}");
                assert_eq!(column.is_filled_in(0..2), from_second, "sharded {sharded}");
            }
        }
    }
}
