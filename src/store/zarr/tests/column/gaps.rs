//! Tests of missing chunks of columns.

use super::*;

/// Returns the codecs of shards with inner chunks of shape `inner` and elements of four bytes.
fn shards(inner: &[u64]) -> Value {
    in_shards(inner, little_endian(), index_codecs(true))
}

/// Missing chunks are lost, and an error, unless `left_out` accepts them and their fill value.
#[test]
fn lost_chunks_are_errors() {
    let lost = |metadata: &Value, left_out| {
        let error = read(&Scratch::of(metadata, &[]), left_out).unwrap_err();
        let Error::Chunk { array, index, why, .. } = &error else { panic!("{error}") };
        assert!(Path::new(&**array).ends_with("a") && **index == [0] && why.contains("missing"), "{error}");
    };
    let (names, _) = text(&["", "", ""]);
    lost(&names, NEVER);
    lost(&names, &|column, fill| column > 0 && fill.is_empty());
    let mut names = names;
    names["fill_value"] = "x".into();
    lost(&names, DOTS);
    let mut numbers = v2(&[3], &[3], "<i4", Value::Null);
    lost(&numbers, NEVER);
    numbers["fill_value"] = (-1).into();
    lost(&numbers, &|_, fill| fill != "-1");
    // A float array has no fill value that is an integer.
    lost(&v2(&[3], &[3], "<f4", Value::Null), &|_, _| true);
}

#[test]
#[allow(clippy::single_range_in_vec_init, reason = "a list of ranges")]
fn chunks_that_were_left_out_are_filled_and_counted() {
    const LOST: u8 = u8::MAX;
    for (numbers, rows) in [
        ([LOST, LOST, LOST], vec![0..3]),
        ([LOST, 0, 1], vec![0..1]),
        ([0, LOST, LOST], vec![1..3]),
        ([LOST, 1, LOST], vec![0..1, 2..3]),
    ] {
        let inner = numbers.map(|number| (number != LOST).then(|| vec![number, 0, 0, 0]));
        let lost = inner.iter().filter(|chunk| chunk.is_none()).count() as u64;
        let sharded = Scratch::of(&v3(&[3], &[3], "int32", shards(&[1])), &[("c/0", shard(&inner, true))]);
        let chunks = ["0", "1", "2"].into_iter().zip(inner);
        let chunks: Vec<_> = chunks.filter_map(|(key, chunk)| Some((key, chunk?))).collect();
        let plain = Scratch::of(&v2(&[3], &[1], "<i4", Value::Null), &chunks);
        for scratch in [plain, sharded] {
            let column = read(&scratch, &|_, fill| fill == "0").unwrap();
            let found = [0, 1, 2].map(|row| column.integer(row).unwrap());
            assert_eq!(found, numbers.map(|number| i64::from(number % LOST)));
            assert_eq!((column.filled(), column.filled_rows()), (lost, &rows[..]), "{numbers:?}");
            assert_eq!(column.is_doubtful(), lost < 3, "{numbers:?}");
            assert!(column.is_filled_in(0..1) && !column.is_filled_in(1..9));
        }
    }
    for fill in ["", "."] {
        let (mut metadata, _) = text(&["", "", ""]);
        metadata["fill_value"] = fill.into();
        let names = read(&Scratch::of(&metadata, &[]), DOTS).unwrap();
        assert!(names.strings().eq([fill; 3]));
        assert_eq!((names.filled(), names.is_doubtful()), (1, false));
        assert!(names.integer(0).unwrap_err().to_string().contains("holds strings"));
    }
}

/// Chunks of further columns may be left out, but not those of the first.
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
            let (chunk, codecs) = if sharded { (4, shards(&[3, 1])) } else { (1, little_endian()) };
            let chunks: Vec<_> = if sharded {
                vec![("c/0/0", shard(&inner, true))]
            } else {
                let keys = ["c/0/0", "c/0/1", "c/0/2", "c/0/3"];
                keys.into_iter().zip(inner.clone()).filter_map(|(key, chunk)| Some((key, chunk?))).collect()
            };
            let scratch = Scratch::of(&letters(v3(&[3, 4], &[3, chunk], "", codecs)), &chunks);
            let column = read(&scratch, &|column, fill| column > 0 && fill.is_empty());
            if inner[0].is_none() {
                assert_refused(column, &[": chunk [0, 0]: it is missing"]);
                continue;
            }
            let column = column.unwrap();
            let text = |place: usize| if inner[place].is_some() { ["C", "G"][place.min(1)] } else { "" };
            assert_eq!(cells(&column, 1), [0, 1, 2, 3].map(text), "sharded {sharded}");
            assert_eq!((column.filled(), column.is_doubtful()), (filled, false), "sharded {sharded}");
            assert_eq!(column.is_filled_in(0..2), from_second, "sharded {sharded}");
            assert!(column.filled_rows().is_empty());
        }
    }
}
