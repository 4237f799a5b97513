//! Tests of packing on the host while genotypes are copied, for any chunks, against the definition.

use teatime::{Error, Run, Status, assert_err, random::philox};

use super::*;
use crate::{
    calls::Calls,
    tests::{assert_refused, code, memory},
};

/// Returns `len` random values out of `kinds`.
fn values(kinds: &[i8], len: u64) -> Vec<i8> {
    (0..len).map(|i| kinds[philox([11, 3], i)[0] as usize % kinds.len()]).collect()
}

/// The words of all panels, the sums of each variant, and the number of rows of each panel.
type Found = (Vec<u32>, Vec<Stats>, Vec<u64>);

fn packed(genotypes: &Genotypes, device: &Device) -> Result<Found> {
    in_uploads(genotypes, device, 1, 0)
}

/// Reads genotypes, of which `blocks` blocks are uploaded at once, in panels of about `rows` rows, at least those of an upload.
fn in_uploads(genotypes: &Genotypes, device: &Device, blocks: u64, rows: u64) -> Result<Found> {
    let (reader, run) = (Reader::new(genotypes, device, true)?, Run::default());
    let pass = Pass::new(&run, Status::new(0, 1, genotypes.variants()));
    let (panel_bytes, upload_rows) = (rows * reader.held_row_bytes(), blocks * reader.plan.block_rows());
    let (mut words, mut sums, mut panels) = (Vec::new(), Vec::new(), Vec::new());
    reader.read(&pass, Reading { panel_bytes, prefetch: 0, upload_rows }, false, &mut |panel, stats| {
        let Entries::Packed(packed) = &panel.entries else { panic!("{:?} should be packed", panel.entries) };
        words.extend(packed.read()?);
        sums.extend_from_slice(stats);
        panels.push(panel.rows.end - panel.rows.start);
        Ok(())
    })?;
    Ok((words, sums, panels))
}

/// Returns the words that hold the codes of all calls.
fn words(calls: Calls, values: &[i8], samples: u64) -> Vec<u32> {
    let codes: Vec<u8> = values.chunks(calls.bytes()).map(|call| code(calls, call)).collect();
    let words = to_usize(row_words(samples));
    let pack = |row: &[u8]| {
        let mut packed = vec![0u32; words];
        row.iter().enumerate().for_each(|(i, &code)| packed[i / 16] |= u32::from(code) << (2 * (i % 16)));
        packed
    };
    codes.chunks(to_usize(samples)).flat_map(pack).collect()
}

fn shapes(calls: Calls, rows: u64, samples: u64, chunk: [u64; 2]) -> [Vec<u64>; 2] {
    let mut shapes = [vec![rows, samples], chunk.to_vec()];
    if calls != Calls::Dosages {
        shapes.iter_mut().for_each(|shape| shape.push(calls.bytes() as u64));
    }
    shapes
}

#[test]
fn any_chunks_give_the_same() {
    let rows = 23;
    let kinds: [(Calls, &[i8]); 3] = [
        (Calls::Haploid, &[0, 1, 0, 5, -1, -2]),
        (Calls::Diploid, &[0, 1, 0, 1, 3, -1, 0, -2]),
        (Calls::Dosages, &[0, 1, 2, -1, 1, 0, -5]),
    ];
    for device in ["cpu", "wgpu", "cuda"].into_iter().filter_map(|name| Device::open(name).ok()) {
        for (calls, kinds) in kinds {
            for samples in [2u64, 3, 5, 16, 17, 64, 130] {
                let values = values(kinds, rows * samples * calls.bytes() as u64);
                let [shape, whole] = shapes(calls, rows, samples, [7, samples]);
                let expected = packed(&memory(&values, &shape, &whole), &device).unwrap();
                assert!(expected.0 == words(calls, &values, samples), "{calls:?} {samples}");
                let wide: Vec<i32> = values.iter().map(|&value| value.into()).collect();
                for chunk in [1, 3, 4, 60, samples + 3] {
                    let [shape, chunks] = shapes(calls, rows, samples, [5, chunk]);
                    for genotypes in [memory(&values, &shape, &chunks), memory(&wide, &shape, &chunks)] {
                        let actual = packed(&genotypes, &device).unwrap();
                        assert_eq!(actual, expected, "{} {calls:?} {samples} in {chunk}", device.info().name);
                    }
                }
            }
        }
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
        let of = |chunk: &[u64]| packed(&memory(&values, &[rows, samples, 2], chunk), &Device::cpu());
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
        let messages = |width: u64| {
            let (shape, chunk) = ([rows, samples, ploidy], [100, width, ploidy]);
            [memory(&values, &shape, &chunk), memory(&wide, &shape, &chunk)]
                .map(|genotypes| assert_err!(packed(&genotypes, &device), Error::Chunk { .. }).to_string())
        };
        for (width, chunk) in [(3, 4), (4, 3), (21, 0), (5, 2), (8, 1)] {
            let place = format!("chunk [4, {chunk}, 0]: variant 417, sample 13: -9 is no allele");
            let [message, same] = messages(width);
            assert!(message == same && message.contains(&place), "`{place}` is not in: {message}");
        }
    }
    let mut values = values(&[0, 1, -1, 2], rows * samples);
    (values[417 * 21 + 13], values[420 * 21 + 1]) = (3, 4);
    for width in [7, 8] {
        let genotypes = memory(&values, &[rows, samples], &[100, width]);
        let place = "chunk [4, 1]: variant 417, sample 13: value 3 is above 2";
        assert_refused(packed(&genotypes, &device), &[place]);
    }
}

#[test]
fn larger_uploads_change_no_bit() {
    let (rows, samples) = (11_000u64, 9u64);
    let values = values(&[0, 1, 2, -1, 1, 0], rows * samples);
    let genotypes = memory(&values, &[rows, samples], &[700, samples]);
    for device in ["cpu", "wgpu", "cuda"].into_iter().filter_map(|name| Device::open(name).ok()) {
        let (words, sums, _) = packed(&genotypes, &device).unwrap();
        for (blocks, panel) in [(1, 0), (2, 8192), (2, 0), (1, 8192)] {
            let found = in_uploads(&genotypes, &device, blocks, panel).unwrap();
            let whole = (panel / 4096).max(blocks) * 4096;
            assert_eq!(found.2.len() as u64, rows.div_ceil(whole), "{:?}", found.2);
            assert!((found.0, found.1) == (words.clone(), sums.clone()), "{blocks} {panel}");
        }
    }
}
