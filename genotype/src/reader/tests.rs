//! Tests of packing on the host while genotypes are copied, for any chunks, against the definition.

use std::sync::Arc;

use teatime::{
    ChunkedArray, Error, Run, Status,
    random::philox,
    store::{MemoryArray, Storable},
};

use super::*;
use crate::{GenotypeKind, Scaler, VariantFilter, counts::CallCounts, scaler::ScaleRule};

/// Returns `len` random values out of `kinds`.
fn values(kinds: &[i8], len: u64) -> Vec<i8> {
    (0..len).map(|i| kinds[philox([11, 3], i)[0] as usize % kinds.len()]).collect()
}

fn genotypes<T: Storable>(parts: &[(&[T], &[u64], &[u64])]) -> Genotypes {
    let array = |&(values, shape, chunk): &(&[T], &[u64], &[u64])| {
        Arc::new(MemoryArray::new("memory", values, shape, chunk).unwrap()) as Arc<dyn ChunkedArray>
    };
    Genotypes::new(parts.iter().map(array).collect()).unwrap()
}

/// The form, the words of all panels, the bits of each variant's [mean, scale], and a digest of each variant's sum and count.
type Packed = (Form, Vec<u32>, Vec<u32>, u64);

fn packed(genotypes: &Genotypes, device: &Device) -> Result<Packed> {
    let reader = Reader::new(genotypes, device, true)?;
    let rule = ScaleRule::new(&reader, Scaler::Patterson, VariantFilter::default());
    let mut counts = CallCounts::new(genotypes.variants(), genotypes.samples(), true)?;
    let run = Run::default();
    let (mut words, mut factors) = (Vec::new(), Vec::new());
    let pass = Pass::new(&run, Status::new(0, 1, genotypes.variants()));
    let reading = Reading { panel_bytes: 0, prefetch: 0, upload_rows: reader.plan.block_rows() };
    reader.read(&pass, reading, false, &mut |panel, stats| {
        let Entries::Packed(packed) = &panel.entries else { panic!("{:?} should be packed", panel.entries) };
        words.extend(packed.read()?);
        factors.extend(rule.scales(stats).iter().flat_map(|scale| scale.factors().map(f32::to_bits)));
        counts.push(stats);
        Ok(())
    })?;
    Ok((reader.form, words, factors, counts.digest()))
}

/// Returns the words that hold the codes of all calls.
fn words(kind: GenotypeKind, values: &[i8], samples: u64) -> Vec<u32> {
    let alternate = |allele: i8| u8::from(allele > 0);
    let code = |call: &[i8]| match (kind, call) {
        (GenotypeKind::Dosages, &[dosage @ 0..=127]) => dosage.cast_unsigned(),
        (GenotypeKind::Calls { .. }, &[allele @ 0..=127]) => alternate(allele),
        (_, &[a @ 0..=127, b @ 0..=127]) => alternate(a) + alternate(b),
        (_, &[a @ 0..=127, -2] | &[-2, a @ 0..=127]) => 2 * alternate(a),
        _ => 3,
    };
    let codes: Vec<u8> = values.chunks(alleles(kind)).map(code).collect();
    let words = to_usize(row_words(samples));
    let pack = |row: &[u8]| {
        let mut packed = vec![0u32; words];
        row.iter().enumerate().for_each(|(i, &code)| packed[i / 16] |= u32::from(code) << (2 * (i % 16)));
        packed
    };
    codes.chunks(to_usize(samples)).flat_map(pack).collect()
}

fn alleles(kind: GenotypeKind) -> usize {
    if let GenotypeKind::Calls { ploidy } = kind { usize::try_from(ploidy).unwrap() } else { 1 }
}

fn shapes(kind: GenotypeKind, rows: u64, samples: u64, chunk: [u64; 2]) -> [Vec<u64>; 2] {
    let mut shapes = [vec![rows, samples], chunk.to_vec()];
    if let GenotypeKind::Calls { ploidy } = kind {
        shapes.iter_mut().for_each(|shape| shape.push(ploidy));
    }
    shapes
}

#[test]
fn any_chunks_give_the_same() {
    let rows = 23;
    let kinds: [(GenotypeKind, &[i8]); 3] = [
        (GenotypeKind::Calls { ploidy: 1 }, &[0, 1, 0, 5, -1, -2]),
        (GenotypeKind::Calls { ploidy: 2 }, &[0, 1, 0, 1, 3, -1, 0, -2]),
        (GenotypeKind::Dosages, &[0, 1, 2, -1, 1, 0, -5]),
    ];
    for device in ["cpu", "wgpu", "cuda"].into_iter().filter_map(|name| Device::open(name).ok()) {
        for (kind, kinds) in kinds {
            for samples in [2u64, 3, 5, 16, 17, 64, 130] {
                let values = values(kinds, rows * samples * alleles(kind) as u64);
                let [shape, whole] = shapes(kind, rows, samples, [7, samples]);
                let expected = packed(&genotypes(&[(&values, &shape, &whole)]), &device).unwrap();
                assert!(expected.1 == words(kind, &values, samples), "{kind:?} {samples}");
                let wide: Vec<i32> = values.iter().map(|&value| value.into()).collect();
                for chunk in [1, 3, 4, 60, samples + 3] {
                    let [shape, chunks] = shapes(kind, rows, samples, [5, chunk]);
                    for genotypes in
                        [genotypes(&[(&values, &shape, &chunks)]), genotypes(&[(&wide, &shape, &chunks)])]
                    {
                        let actual = packed(&genotypes, &device).unwrap();
                        let what = format!("{} {kind:?} {samples} in {chunk}", device.info().name);
                        assert_eq!(actual.1, expected.1, "codes: {what}");
                        assert_eq!((&actual.2, actual.3), (&expected.2, expected.3), "counts: {what}");
                    }
                }
            }
        }
    }
}

/// Appended arrays have different chunks, some of which split the calls that share a byte.
#[test]
fn appended_arrays_of_any_chunks() {
    let device = Device::cpu();
    let values = values(&[0, 1, -1, 2], 2 * 20 * 9);
    let halves = [&values[..180], &values[180..]];
    let whole = packed(&genotypes(&[(&values, &[40, 9], &[6, 9])]), &device).unwrap();
    for chunk in [8, 6, 1] {
        let parts = [(halves[0], &[20, 9][..], &[3, 4][..]), (halves[1], &[20, 9], &[20, chunk])];
        assert!(packed(&genotypes(&parts), &device).unwrap() == whole);
    }
}

/// Alleles of a call may lie in two chunks or next to padding, also in rows longer than one step assembles.
#[test]
fn cut_calls_are_put_together() {
    for (rows, samples, chunks) in [
        (10, 8, &[[4, 4, 1], [4, 4, 3], [3, 3, 1], [10, 8, 1]][..]),
        (3, 20_001, &[[2, 3001, 1], [1, 10_001, 2], [3, 20_001, 1]]),
    ] {
        let values = values(&[0, 1, -1, -2], rows * samples * 2);
        let of = |chunk: &[u64]| packed(&genotypes(&[(&values, &[rows, samples, 2], chunk)]), &Device::cpu());
        let expected = of(&[rows, samples, 2]).unwrap();
        for chunk in chunks {
            assert!(of(chunk).unwrap() == expected, "{chunk:?}");
        }
    }
}

/// The error names the first bad value by variant and sample, in the same words whether packing is direct or assembles rows first.
#[test]
fn the_first_bad_value_is_named() {
    let device = Device::cpu();
    let (rows, samples) = (900u64, 21u64);
    for ploidy in [1, 2] {
        let mut values = values(&[0, 1, -1, -2], rows * samples * ploidy);
        for (row, sample, value) in [(899, 0, -128i8), (417, 20, -3), (417, 13, -9), (600, 3, -4)] {
            let at = (row * samples + sample) * ploidy + ploidy - 1;
            values[usize::try_from(at).unwrap()] = value;
        }
        let wide: Vec<i16> = values.iter().map(|&value| value.into()).collect();
        let message = |width: u64| {
            let (shape, chunk) = ([rows, samples, ploidy], [100, width, ploidy]);
            let both = [genotypes(&[(&values, &shape, &chunk)]), genotypes(&[(&wide, &shape, &chunk)])];
            let [message, same] = both.map(|genotypes| match packed(&genotypes, &device) {
                Err(error @ Error::Chunk { .. }) => error.to_string(),
                other => panic!("{other:?}"),
            });
            assert_eq!(message, same);
            message
        };
        for (width, chunk) in [(3, 4), (4, 3), (21, 0), (5, 2), (8, 1)] {
            let place = format!("chunk [4, {chunk}, 0]: variant 417, sample 13: -9 is no allele");
            let message = message(width);
            assert!(message.contains(&place), "`{place}` is not in: {message}");
        }
    }
    let mut values = values(&[0, 1, -1, 2], rows * samples);
    values[417 * 21 + 13] = 3;
    values[420 * 21 + 1] = 4;
    for (width, place) in [
        (7, "chunk [4, 1]: variant 417, sample 13: value 3 is above 2"),
        (8, "chunk [4, 1]: variant 417, sample 13: value 3 is above 2"),
    ] {
        let error = packed(&genotypes(&[(&values, &[rows, samples], &[100, width])]), &device).unwrap_err();
        assert!(error.to_string().contains(place), "`{place}` is not in: {error}");
    }
}

#[test]
fn larger_uploads_change_no_bit() {
    let (rows, samples) = (11_000u64, 9u64);
    let values = values(&[0, 1, 2, -1, 1, 0], rows * samples);
    let genotypes = genotypes(&[(&values, &[rows, samples], &[700, samples])]);
    for device in ["cpu", "wgpu", "cuda"].into_iter().filter_map(|name| Device::open(name).ok()) {
        let mut first = None;
        for (factor, panel) in [(1, 0), (2, 8192), (2, 0), (1, 8192)] {
            let reader = Reader::new(&genotypes, &device, true).unwrap();
            let block = reader.plan.block_rows();
            let run = Run::default();
            let pass = Pass::new(&run, Status::new(0, 1, rows));
            let (mut words, mut sums, mut panels) = (Vec::new(), Vec::new(), Vec::new());
            let panel_bytes = panel * reader.held_row_bytes();
            let reading = Reading { panel_bytes, prefetch: 0, upload_rows: factor * block };
            reader
                .read(&pass, reading, false, &mut |panel, stats| {
                    let Entries::Packed(packed) = &panel.entries else {
                        panic!("{:?} should be packed", panel.entries)
                    };
                    words.extend(packed.read()?);
                    sums.extend_from_slice(stats);
                    panels.push(panel.rows.end - panel.rows.start);
                    Ok(())
                })
                .unwrap();
            let whole = (panel / block).max(factor) * block;
            assert_eq!(panels.len() as u64, rows.div_ceil(whole), "{panels:?}");
            let found = (words, sums);
            assert!(*first.get_or_insert_with(|| found.clone()) == found, "{factor} {panel}");
        }
    }
}
