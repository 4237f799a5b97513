//! Genotypes packed on the host while they are copied, against those that the device packs.

use std::sync::Arc;

use super::*;
use crate::{
    ChunkedArray, Run, Status,
    genotype::{GenotypeKind, Scaler, VariantFilter, counts::CallCounts, scaler::ScaleRule},
    kernels::pack_genotypes::Coding,
    random::philox,
    store::{MemoryArray, Storable},
};

/// Any of these values.
fn values(kinds: &[i8], len: u64) -> Vec<i8> {
    (0..len).map(|i| kinds[philox([11, 3], i)[0] as usize % kinds.len()]).collect()
}

fn genotypes<T: Storable>(parts: &[(&[T], &[u64], &[u64])]) -> Genotypes {
    let array = |&(values, shape, chunk): &(&[T], &[u64], &[u64])| {
        Arc::new(MemoryArray::new("memory", values, shape, chunk).unwrap()) as Arc<dyn ChunkedArray>
    };
    Genotypes::new(parts.iter().map(array).collect()).unwrap()
}

/// Form, words of all panels, [mean, scale] of all variants, sum and count of each by their hash.
type Packed = (Form, Vec<u32>, Vec<u32>, u64);

fn packed(genotypes: &Genotypes, device: &Device) -> Result<Packed> {
    let reader = Reader::new(genotypes, device, true)?;
    let rule = ScaleRule::new(&reader, Scaler::Patterson, VariantFilter::default());
    let mut counts = CallCounts::new(genotypes.variants(), genotypes.samples(), true)?;
    let run = Run::default();
    let (mut words, mut factors) = (Vec::new(), Vec::new());
    let pass = Pass::new(&run, Status::new(0, 1, genotypes.variants()));
    reader.read(&pass, 0, false, &mut |panel, stats| {
        let Held::Packed(packed) = &panel.held else { panic!("{:?} should be packed", panel.held) };
        words.extend(packed.read()?);
        factors.extend(rule.scales(stats).iter().flat_map(|scale| scale.factors().map(f32::to_bits)));
        counts.push(stats);
        Ok(())
    })?;
    Ok((reader.form, words, factors, counts.digest()))
}

/// Chunks of samples that the host cannot pack, unless all samples are one.
const RAW: u64 = 1;

fn shapes(kind: GenotypeKind, rows: u64, samples: u64, chunk: [u64; 2]) -> [Vec<u64>; 2] {
    let mut shapes = [vec![rows, samples], chunk.to_vec()];
    if let GenotypeKind::Calls { ploidy } = kind {
        shapes.iter_mut().for_each(|shape| shape.push(ploidy));
    }
    shapes
}

#[test]
fn either_route_gives_the_same() {
    let rows = 23;
    let kinds: [(GenotypeKind, &[i8]); 3] = [
        (GenotypeKind::Calls { ploidy: 1 }, &[0, 1, 0, 5, -1, -2]),
        (GenotypeKind::Calls { ploidy: 2 }, &[0, 1, 0, 1, 3, -1, 0, -2]),
        (GenotypeKind::Dosages, &[0, 1, 2, -1, 1, 0, -5]),
    ];
    for device in ["cpu", "wgpu", "cuda"].into_iter().filter_map(|name| Device::open(name).ok()) {
        for (kind, kinds) in kinds {
            for samples in [2u64, 3, 4, 5, 15, 16, 17, 63, 64, 65, 130, 257] {
                let alleles = if let GenotypeKind::Calls { ploidy } = kind { ploidy } else { 1 };
                let values = values(kinds, rows * samples * alleles);
                let [shape, raw] = shapes(kind, rows, samples, [7, RAW]);
                let expected = packed(&genotypes(&[(&values, &shape, &raw)]), &device).unwrap();
                assert_ne!(expected.0, Form::Packed(Coding::Codes), "{kind:?} {samples}");
                let wide: Vec<i32> = values.iter().map(|&value| value.into()).collect();
                for chunk in [4, 8, 60, 64, samples, samples + 3] {
                    let [shape, chunks] = shapes(kind, rows, samples, [5, chunk]);
                    for genotypes in
                        [genotypes(&[(&values, &shape, &chunks)]), genotypes(&[(&wide, &shape, &chunks)])]
                    {
                        let actual = packed(&genotypes, &device).unwrap();
                        assert_eq!(actual.0, Form::Packed(Coding::Codes));
                        let what = format!("{} {kind:?} {samples} in {chunk}", device.info().name);
                        assert_eq!(actual.1, expected.1, "codes: {what}");
                        assert_eq!((&actual.2, actual.3), (&expected.2, expected.3), "counts: {what}");
                    }
                }
            }
        }
    }
}

/// One array of which the host cannot pack the chunks leaves all to the device.
#[test]
fn appended_arrays_take_one_route() {
    let device = Device::cpu();
    let values = values(&[0, 1, -1, 2], 2 * 20 * 9);
    let halves = [&values[..180], &values[180..]];
    let whole = packed(&genotypes(&[(&values, &[40, 9], &[6, 9])]), &device).unwrap();
    for (chunk, coding) in [(8, Coding::Codes), (6, Coding::Dosages)] {
        let parts = [(halves[0], &[20, 9][..], &[3, 4][..]), (halves[1], &[20, 9], &[20, chunk])];
        let actual = packed(&genotypes(&parts), &device).unwrap();
        assert_eq!(actual.0, Form::Packed(coding));
        assert_eq!((&actual.1, &actual.2, actual.3), (&whole.1, &whole.2, whole.3));
    }
}

/// Calls whose alleles lie in two chunks, or beside padding.
#[test]
fn cut_calls_are_left_to_the_device() {
    let device = Device::cpu();
    let values = values(&[0, 1, -1, -2], 10 * 8 * 2);
    let of = |chunk: &[u64]| packed(&genotypes(&[(&values, &[10, 8, 2], chunk)]), &device).unwrap();
    let expected = of(&[10, 8, 2]);
    assert_eq!(expected.0, Form::Packed(Coding::Codes));
    for deep in [1, 3] {
        let actual = of(&[4, 4, deep]);
        assert_eq!(actual.0, Form::Packed(Coding::Diploid));
        assert_eq!((&actual.1, &actual.2, actual.3), (&expected.1, &expected.2, expected.3));
    }
}

/// The first bad value by variant and sample, and in the same words.
#[test]
fn either_route_names_the_first_bad_value() {
    let device = Device::cpu();
    let (rows, samples) = (900u64, 21u64);
    for ploidy in [1, 2] {
        let mut values = values(&[0, 1, -1, -2], rows * samples * ploidy);
        for (row, sample, value) in [(899, 0, -128i8), (417, 20, -3), (417, 13, -9), (600, 3, -4)] {
            let at = (row * samples + sample) * ploidy + ploidy - 1;
            values[usize::try_from(at).unwrap()] = value;
        }
        let message = |width: u64| {
            let parts = [(&values[..], &[rows, samples, ploidy][..], &[100, width, ploidy][..])];
            match packed(&genotypes(&parts), &device) {
                Err(error @ Error::Chunk { .. }) => error.to_string(),
                other => panic!("{other:?}"),
            }
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
        (7, "chunk [4, 1]: row 417: value 3 at element 6 is outside -2 to 2"),
        (8, "chunk [4, 1]: row 417: value 3 at element 5 is outside -2 to 2"),
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
            let mut reader = Reader::new(&genotypes, &device, true).unwrap();
            let block = reader.plan.block_rows();
            reader.set(0, factor * block);
            let run = Run::default();
            let pass = Pass::new(&run, Status::new(0, 1, rows));
            let (mut words, mut sums, mut panels) = (Vec::new(), Vec::new(), Vec::new());
            let bytes = panel * reader.held_row_bytes();
            reader
                .read(&pass, bytes, false, &mut |panel, stats| {
                    let Held::Packed(packed) = &panel.held else {
                        panic!("{:?} should be packed", panel.held)
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
