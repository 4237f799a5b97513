//! Tests of arguments that sums and products over packed rows refuse.

use super::*;
use crate::{
    linalg::{BlockSum, Pass, SignRule, gram_svd},
    packed::{
        Entries, Gram, GramOptions, KnownPairs, KnownRow, PackedMatrix, PackedProduct, PackedRows, Panel,
        RowScale, Weight, WeightedSums, packed_uniform, recode, row_words,
    },
};

device_tests! { rows_beyond, scales, weights, bounds, panels_of_the_host, codes, blocks }

const COLUMNS: u64 = 70;

fn panel(device: &Device, rows: u64, columns: u64) -> Tensor<u32> {
    Tensor::zeros(device, &[rows, row_words(columns)]).unwrap()
}

fn is_shape<T>(result: Result<T>) -> bool {
    matches!(result, Err(Error::Shape { .. }))
}

fn argument<T>(result: Result<T>) -> &'static str {
    match result {
        Err(Error::Argument { name, .. }) => name,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it should be refused"),
    }
}

fn rows_beyond(device: &Device) {
    let x = Matrix::zeros(COLUMNS as usize, 2);
    let (packed, other, line) = (panel(device, 3, COLUMNS), panel(device, 3, 3), panel(device, 12, 1));
    let line = line.reshape(&[48]).unwrap();
    let (table, short) = ([[0.0f32, 1.0]; 3], [[0.0f32, 1.0]; 2]);
    let [table, short] = [&table[..], &short[..]]
        .map(|table| Tensor::from_slice(device, table.as_flattened(), &[table.len() as u64, 2]).unwrap());
    let rows = |packed, range| PackedRows { packed, range, missing: true };
    let cases = [
        (rows(&other, (0, 3)), &table, false),
        (rows(&line, (0, 3)), &table, false),
        (rows(&packed, (0, 4)), &table, false),
        (rows(&packed, (2, 1)), &table, false),
        (rows(&packed, (0, 3)), &short, true),
    ];
    for (rows, table, needs_no_table) in cases {
        assert!(is_shape(PackedProduct::new(device, &x, true, Some([1.0; 2])).unwrap().add(rows, table)));
        let product = PackedProduct::new(device, &x, true, None).unwrap();
        assert!(is_shape(product.each_part([rows].into_iter(), table, &mut |_, _| Ok(()))));
        let mut sums = WeightedSums::new(device, COLUMNS, 1).unwrap();
        let added = sums.add(rows, |_, _, weights| weights[0] = Weight { one: 1, missing: 0 });
        assert_eq!(is_shape(added), !needs_no_table);
    }
    let options = GramOptions { centred: true, unit_factors: true };
    let scales = [RowScale { mean: 0.0, factor: 1.0, known: COLUMNS }; 3];
    let known = [KnownRow { weight: 1.0, known: 1 }; 3];
    for (packed, from) in [(&other, 0), (&line, 0), (&packed, 1), (&packed, u64::MAX)] {
        assert!(is_shape(Gram::new(device, COLUMNS, 9, options).unwrap().add(packed, from, 0, &scales)));
        assert!(is_shape(KnownPairs::new(device, COLUMNS, 9, None).unwrap().add(packed, from, &known)));
    }
}

fn scales(device: &Device) {
    let packed = panel(device, 1, COLUMNS);
    let add = |unit_factors, scale| {
        let mut gram = Gram::new(device, COLUMNS, 1, GramOptions { centred: true, unit_factors }).unwrap();
        gram.add(&packed, 0, 0, &[scale])
    };
    let sound = RowScale { mean: 0.5, factor: 1.0, known: 60 };
    add(true, sound).unwrap();
    add(false, RowScale { factor: 0.0, mean: f64::NAN, ..sound }).unwrap();
    assert_eq!(argument(add(true, RowScale { factor: 2.0, ..sound })), "scales");
    for scale in [
        RowScale { known: COLUMNS + 1, ..sound },
        RowScale { factor: -1.0, ..sound },
        RowScale { factor: f64::NAN, ..sound },
        RowScale { factor: f64::INFINITY, ..sound },
        RowScale { factor: 1e9, ..sound },
        RowScale { mean: -0.1, ..sound },
        RowScale { mean: 2.1, ..sound },
        RowScale { mean: f64::NAN, ..sound },
    ] {
        assert_eq!(argument(add(false, scale)), "scales", "{scale:?}");
    }
    let mut gram = Gram::new(device, COLUMNS, 1, GramOptions { centred: true, unit_factors: true }).unwrap();
    gram.add(&packed, 0, 0, &[sound]).unwrap();
    assert_eq!(argument(gram.add(&packed, 0, 1, &[sound])), "scales", "one row was said");
    let many = Gram::new(device, 1 << 23, 1, GramOptions { centred: true, unit_factors: true });
    assert!(matches!(many, Err(Error::Limit { .. })));
}

fn weights(device: &Device) {
    let add = |largest, row| KnownPairs::new(device, COLUMNS, 1, largest).unwrap().count(&[row]);
    let sound = KnownRow { weight: 1.0, known: 60 };
    add(None, sound).unwrap();
    add(Some(1.5), sound).unwrap();
    for (largest, row) in [
        (None, KnownRow { weight: 0.5, ..sound }),
        (Some(0.9), sound),
        (Some(2.0), KnownRow { weight: -0.5, ..sound }),
        (Some(2.0), KnownRow { weight: f64::NAN, ..sound }),
        (None, KnownRow { known: COLUMNS + 1, ..sound }),
    ] {
        assert_eq!(argument(add(largest, row)), "rows", "{largest:?} {row:?}");
    }
    // One row was announced, and the sums of many more would overflow.
    let mut pairs = KnownPairs::new(device, COLUMNS, 1, Some(0.5)).unwrap();
    let row = KnownRow { weight: 0.5, known: 60 };
    pairs.count(&[row; 1000]).unwrap();
    assert_eq!(argument(pairs.count(&[row; 1000])), "rows");
    for largest in [0.0, -1.0, 1e-300, f64::NAN, f64::INFINITY] {
        assert_eq!(argument(KnownPairs::new(device, COLUMNS, 1, Some(largest))), "largest");
    }
}

/// A product needs bounds, unless it goes to a sink.
fn bounds(device: &Device) {
    let (x, packed) = (Matrix::zeros(COLUMNS as usize, 2), panel(device, 1, COLUMNS));
    let table = Tensor::from_slice(device, &[0.0f32, 1.0], &[1, 2]).unwrap();
    let rows = PackedRows { packed: &packed, range: (0, 1), missing: false };
    let new = |bounds| PackedProduct::new(device, &x, false, bounds);
    for bound in [-1.0, f64::NAN, f64::INFINITY] {
        assert_eq!(argument(new(Some([1.0, bound]))), "bounds");
    }
    assert_eq!(argument(new(None).unwrap().add(rows, &table)), "self");
    assert_eq!(argument(new(None).unwrap().finish()), "self");
    let product = new(Some([1.0; 2])).unwrap();
    assert_eq!(argument(product.each_part([rows].into_iter(), &table, &mut |_, _| Ok(()))), "self");
}

fn panels_of_the_host(device: &Device) {
    let panel = |rows, entries| Panel { rows, entries, missing: false };
    let packed = |rows: std::ops::Range<u64>, word: u32| {
        let words = vec![word; 4 * (rows.end - rows.start) as usize];
        let words = Tensor::from_slice(device, &words, &[rows.end - rows.start, 4]).unwrap();
        panel(rows, Entries::Packed(words))
    };
    let mut matrix = PackedMatrix::in_panels(device, 5, Some(0));
    assert!(is_shape(matrix.keep(panel(0..3, packed(0..2, 1).entries))));
    assert_eq!(argument(matrix.keep(packed(1..2, 1))), "panel", "a gap");
    let unpacked = panel(0..1, Entries::I8(Tensor::zeros(device, &[1, 5]).unwrap()));
    assert_eq!(argument(unpacked.packed()), "self");
    assert_eq!(argument(matrix.keep(unpacked)), "panel");
    assert_eq!(argument(packed(0..1, 1).standardized(&[[0.0; 3]])), "self");
    matrix.keep(packed(0..2, 7)).unwrap();
    let run = Run::default();
    let rows = |matrix: &PackedMatrix| {
        let mut found = Vec::new();
        matrix.each(&Pass::new(&run, Status::new(0, 1, 0)), &mut |panel| {
            let Entries::Packed(packed) = &panel.entries else { panic!("{panel:?} should be packed") };
            found.push((panel.rows.clone(), packed.read()?[0]));
            Ok(())
        })?;
        Ok(found)
    };
    assert_eq!(argument(rows(&matrix)), "self");
    matrix.complete().unwrap();
    assert_eq!(rows(&matrix).unwrap(), [(0..1, 7), (1..2, 7)], "a row at a time");
    // A longer panel is kept after the slots were allocated.
    matrix.keep(packed(2..12, 9)).unwrap();
    matrix.complete().unwrap();
    assert_eq!(rows(&matrix).unwrap()[2..4], [(2..3, 9), (3..4, 9)]);
}

fn codes(device: &Device) {
    let raw = Tensor::from_slice(device, &[0u8; 2], &[2, 1]).unwrap();
    let mut packed = panel(device, 2, 4);
    assert_eq!(argument(recode(&raw, [0, 1, 2, 4], 4, &mut packed, 0)), "table");
    assert!(is_shape(recode(&raw, [0, 1, 2, 3], 4, &mut packed, u64::MAX)));
    assert_eq!(packed_uniform(device, 0, 0, 5, 0).unwrap().shape(), [5, 0]);
    for (first, rows) in [(u64::MAX, 1), (0, u64::MAX), ((1 << 62) - 1, 10)] {
        assert!(matches!(packed_uniform(device, 0, first, rows, 200), Err(Error::Limit { .. })));
    }
}

fn blocks(device: &Device) {
    let block = Tensor::<f32>::zeros(device, &[2, 3]).unwrap();
    assert!(is_shape(BlockSum::new(device, 3, 2).unwrap().add(&block)));
    assert!(is_shape(BlockSum::symmetric(device, 3).unwrap().add(&block)));
    let svd = |gram: &Matrix, k| gram_svd(gram, k, SignRule::Stable, device);
    assert!(is_shape(svd(&Matrix::zeros(3, 2), 1)));
    assert_eq!(argument(svd(&Matrix::zeros(3, 3), 4)), "k");
    assert_eq!(argument(svd(&Matrix::from_vec(vec![f64::NAN], 1, 1).unwrap(), 1)), "gram");
    assert_eq!(svd(&Matrix::zeros(3, 3), 0).unwrap().v.cols(), 0);
}
