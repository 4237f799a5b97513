//! The tables and the vectors of `teatime svd`.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    sync::Arc,
};

use clap::ValueEnum;
use teatime::{
    Error, Run, StoredType, bytemuck,
    linalg::Matrix,
    store::{ArraySpec, ArrayWriter, BoxWriter, Folder, NpyWriter},
    stream::StoredSvd,
};

use crate::{failure::Failure, output::Output, text};

pub(super) const SINGULAR_VALUES: &str = "singular_values.tsv";

/// The number of rows of a chunk, at multiples of which blocks of vectors start.
const CHUNK: u64 = 1024;

/// The format of vectors.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(super) enum Format {
    /// A numpy array
    #[default]
    Npy,
    /// A Zarr array
    Zarr,
    /// A table
    Tsv,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Side {
    Left,
    Right,
}

pub(super) fn values(output: &Output, svd: &StoredSvd) -> Result<(), Failure> {
    let (variance, shares) = (svd.explained_variance(), svd.shares());
    output.put(SINGULAR_VALUES, |file| {
        let names = match variance {
            Some(_) => "explained_variance\texplained_variance_ratio",
            None => "share",
        };
        writeln!(file, "component\tsingular_value\t{names}\tresidual\tconverged")?;
        for (i, share) in shares.into_iter().enumerate() {
            let variance = variance.as_ref().map(|variance| variance[i]);
            let row = [Some(svd.s[i]), variance, Some(share), Some(svd.residuals[i])];
            let row: String =
                row.iter().flatten().map(|value| format!("\t{}", text::exact(*value))).collect();
            writeln!(file, "{}{row}\t{}", i + 1, svd.converged[i])?;
        }
        Ok(())
    })
}

/// Writes the vectors of a side block by block.
pub(super) fn vectors(
    output: &Output,
    svd: &StoredSvd,
    side: Side,
    format: Format,
    run: &Run,
) -> teatime::Result<()> {
    let (name, axis, extent) = match side {
        Side::Left => ("left", "row", svd.shape[0]),
        Side::Right => ("right", "column", svd.shape[1]),
    };
    let each = |sink: &mut dyn FnMut(u64, &Matrix) -> teatime::Result<()>| match side {
        Side::Left => svd.left(run, sink),
        Side::Right => svd.right(run, sink),
    };
    let shape = [extent, svd.s.len() as u64];
    match format {
        Format::Npy => {
            let writer = NpyWriter::create(output.path(&format!("{name}.npy")), StoredType::F64, &shape)?;
            each(&mut |first, rows| write_rows(&writer, first, rows))?;
            writer.finish()
        }
        Format::Zarr => {
            let chunk = [CHUNK.min(extent), shape[1]];
            let spec = ArraySpec::new(StoredType::F64, &shape, &chunk).of_results(&[axis, "component"]);
            let folder = Folder::new(output.path(&format!("{name}.zarr")));
            let writer = ArrayWriter::create(Arc::new(folder), "", spec)?;
            each(&mut |first, rows| write_rows(&writer, first, rows))?;
            writer.finish()
        }
        Format::Tsv => {
            let path = output.path(&format!("{name}.tsv"));
            let fail = |source| Error::io(path.display(), source);
            let mut file = BufWriter::new(File::create(&path).map_err(fail)?);
            let columns: String = (1..=svd.s.len()).map(|number| format!("\t{number}")).collect();
            writeln!(file, "{axis}{columns}").map_err(fail)?;
            each(&mut |first, rows| table_rows(&mut file, first, rows).map_err(fail))?;
            file.flush().map_err(fail)
        }
    }
}

fn write_rows(writer: &impl BoxWriter, first: u64, rows: &Matrix) -> teatime::Result<()> {
    let ranges = [first..first + rows.rows() as u64, 0..rows.cols() as u64];
    writer.write_box_bytes(&ranges, bytemuck::cast_slice(rows.data()))
}

fn table_rows(file: &mut impl Write, first: u64, rows: &Matrix) -> io::Result<()> {
    (first..).zip(0..rows.rows()).try_for_each(|(number, row)| {
        write!(file, "{number}")?;
        rows.row(row).iter().try_for_each(|value| write!(file, "\t{}", text::exact(*value)))?;
        writeln!(file)
    })
}
