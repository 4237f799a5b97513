//! Tests of missing values that are read as NaN.

use super::*;
use crate::{
    StoredType::{self, F16, F32, F64, U8},
    openings::assert_refused,
    store::{MissingAsNan, Storable},
};

/// Writes an array of 3 x 3 in chunks of 2 x 2, which extend beyond its ends, with `missing` as the missing value.
fn marked<T: Storable>(values: [T; 9], missing: Value) -> (Scratch, Arc<ZarrArray>) {
    let scratch = Scratch::new();
    let mut spec = ArraySpec::new(T::STORED, &[3, 3], &[2, 2]);
    spec.attributes.insert("_FillValue".into(), missing);
    let writer = ArrayWriter::create(Arc::new(Folder::new(scratch.path())), "a", spec).unwrap();
    for (i, j) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let tile =
            (2 * i..3.min(2 * i + 2)).flat_map(|row| (2 * j..3.min(2 * j + 2)).map(move |col| 3 * row + col));
        writer.write(&[i as u64, j as u64], &tile.map(|at| values[at]).collect::<Vec<_>>()).unwrap();
    }
    writer.finish().unwrap();
    let array = Arc::new(scratch.strict());
    (scratch, array)
}

/// Returns the elements, read from the chunks; one chunk is read twice.
fn elements(array: &MissingAsNan) -> crate::Result<Vec<f64>> {
    let mut all = vec![0.0; 9];
    for (i, j) in [(0, 0), (0, 1), (1, 0), (1, 1), (0, 0)] {
        let bytes = array.read_chunk(&[i as u64, j as u64])?.bytes;
        let size = array.dtype().size();
        assert_eq!(bytes.len(), 4 * size);
        for (at, element) in bytes.chunks(size).enumerate() {
            let value = match array.dtype() {
                F16 => half::f16::from_ne_bytes(element.try_into().unwrap()).to_f64(),
                F32 => f32::from_ne_bytes(element.try_into().unwrap()).into(),
                F64 => f64::from_ne_bytes(element.try_into().unwrap()),
                _ => element[0].into(),
            };
            let (row, col) = (2 * i + at / 2, 2 * j + at % 2);
            if row < 3 && col < 3 {
                all[3 * row + col] = value;
            }
        }
    }
    Ok(all)
}

/// Tests every type, with the fifth and the last element missing.
#[test]
fn of_every_type() {
    fn check<T: Storable>(value: impl Fn(u8) -> T, missing: T, named: Value, read_as: StoredType) {
        let mut values: [T; 9] = std::array::from_fn(|i| value(u8::try_from(i).unwrap()));
        (values[4], values[8]) = (missing, missing);
        let (_scratch, array) = marked(values, named);
        let array = MissingAsNan::new(array).unwrap();
        assert_eq!((array.dtype(), array.missing_elements()), (read_as, 0));
        for (i, found) in elements(&array).unwrap().into_iter().enumerate() {
            let is_right = if [4, 8].contains(&i) { found.is_nan() } else { found == i as f64 };
            assert!(is_right, "{read_as:?} {i}: {found}");
        }
        // Each chunk counts once, and elements beyond the array do not count.
        assert_eq!(array.missing_elements(), 2);
    }
    check(|i| i, 255, json!(255), F32);
    check(|i| i as i8, -1, json!(-1), F32);
    check(u16::from, 65535, json!(65535), F32);
    check(i16::from, -32768, json!(-32768), F32);
    check(u32::from, u32::MAX, json!(u32::MAX), F64);
    check(i32::from, i32::MIN, json!(i32::MIN), F64);
    check(u64::from, u64::MAX, json!(u64::MAX), F64);
    check(i64::from, i64::MIN, json!(i64::MIN), F64);
    check(|i| half::f16::from_f32(i.into()), half::f16::from_f32(-999.0), json!(-999), F16);
    check(f32::from, 9.969_21e36, json!(9.969_21e36), F32);
    check(f64::from, f64::NAN, json!("NaN"), F64);
    // NaN is missing too, even if another value marks missing elements.
    check(f64::from, f64::NAN, json!(-1), F64);
    // Zero is the missing value, and also the value of the elements beyond the array.
    let (_scratch, array) = marked([1i16, 2, 3, 4, 0, 6, 7, 8, 9], json!(0));
    let array = MissingAsNan::new(array).unwrap();
    let found = elements(&array).unwrap();
    assert!(found[4].is_nan() && found[8] == 9.0 && array.missing_elements() == 1, "{found:?}");
}

#[test]
fn integers_are_kept_unless_one_is_missing() {
    let (_scratch, array) = marked([1u8, 2, 3, 4, 5, 6, 7, 8, 9], json!(255));
    let array = MissingAsNan::new(array).unwrap().keeping_integers();
    assert_eq!((array.dtype(), elements(&array).unwrap()[8], array.missing_elements()), (U8, 9.0, 0));
    let (_scratch, array) = marked([1u8, 2, 3, 4, 255, 6, 7, 8, 9], json!(255));
    let error = elements(&MissingAsNan::new(array).unwrap().keeping_integers()).unwrap_err();
    let why = error.to_string();
    assert!(matches!(error, Error::Chunk { .. }) && why.contains("255") && why.contains("U8"), "{why}");
    // Integers that f64 does not represent.
    let (_scratch, array) = marked([1 << 53, 2, 3, 4, 5, 6, 7, 8, 9i64], json!(-1));
    assert_refused(elements(&MissingAsNan::new(array).unwrap()), &["9007199254740992"]);
    // Arrays that name no missing value are not wrapped.
    let scratch = Scratch::of(&v2(&[2], &[2], "|u1", Value::Null), &[("0", vec![1, 2])]);
    assert!(MissingAsNan::new(Arc::new(scratch.strict())).is_none());
}
