//! Matrices on the host.

use std::{
    fmt,
    io::{self, Write},
    ops::{Index, IndexMut, Range},
    path::Path,
};

use faer::{MatMut, MatRef};

use crate::{Device, Element, Error, Real, Result, Tensor, extent::to_usize, store::write_npy};

/// A row-major matrix of f64 on the host, for arguments and results that are small compared to the data.
///
/// Element (i, j) is `matrix[(i, j)]`. The host's memory bounds the size. Only [`to_tensor`](Self::to_tensor) uses a device. With the feature
/// `ndarray`, `Array2<f64>::from(matrix)` and `Matrix::from(&array)` convert: the first copies nothing.
///
/// ```
/// use teatime::linalg::Matrix;
/// let mut a = Matrix::from([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]);
/// a[(1, 2)] = 7.0;
/// assert_eq!((a.rows(), a.cols(), a.row(1)), (2, 3, &[4.0, 5.0, 7.0][..]));
/// assert_eq!(format!("{a:?}"), "[[1.0, 2.0, 3.0],\n [4.0, 5.0, 7.0]], shape=[2, 3]");
/// ```
#[derive(Clone, PartialEq)]
pub struct Matrix {
    rows: usize,
    cols: usize,
    data: Vec<f64>,
}

impl Matrix {
    /// Creates a matrix of zeros.
    ///
    /// # Panics
    /// If the number of elements overflows, or the host has no memory for them.
    pub fn zeros(rows: usize, cols: usize) -> Self {
        let len = rows.checked_mul(cols).expect("a matrix should fit the address space");
        Self { rows, cols, data: vec![0.0; len] }
    }

    /// Creates a matrix from its elements in C order.
    ///
    /// # Errors
    /// [`Error::Shape`] unless there are `rows * cols` elements.
    pub fn from_vec(data: Vec<f64>, rows: usize, cols: usize) -> Result<Self> {
        if rows.checked_mul(cols) != Some(data.len()) {
            let got = format!("{} values", data.len());
            return Err(Error::shape("Matrix::from_vec", format_args!("({rows}, {cols})"), got));
        }
        Ok(Self { rows, cols, data })
    }

    /// Returns the elements in C order, without a copy.
    pub fn into_vec(self) -> Vec<f64> {
        self.data
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the number of columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Returns the elements in C order.
    pub fn data(&self) -> &[f64] {
        &self.data
    }

    /// Returns the elements in C order, to be changed.
    pub fn data_mut(&mut self) -> &mut [f64] {
        &mut self.data
    }

    /// Returns row `i`.
    ///
    /// # Panics
    /// When `i` is not below [`rows`](Self::rows).
    pub fn row(&self, i: usize) -> &[f64] {
        &self.data[i * self.cols..][..self.cols]
    }

    /// Writes a .npy file: (rows, columns) in f64. The file appears whole and replaces an existing one.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write_npy(&self, path: impl AsRef<Path>) -> Result<()> {
        write_npy(path, &self.data, [self.rows, self.cols])
    }

    /// Writes a table: the line `header`, and a line for each row that has a name, with its name and its elements, separated by tabs. `text`
    /// formats an element, given its column.
    ///
    /// # Errors
    /// Fails as `to` does.
    pub fn write_table(
        &self,
        to: &mut dyn Write,
        header: &str,
        names: impl IntoIterator<Item = impl fmt::Display>,
        text: impl Fn(usize, f64) -> String,
    ) -> io::Result<()> {
        writeln!(to, "{header}")?;
        (0..self.rows).zip(names).try_for_each(|(row, name)| {
            write!(to, "{name}")?;
            let mut row = self.row(row).iter().enumerate();
            row.try_for_each(|(column, x)| write!(to, "\t{}", text(column, *x)))?;
            writeln!(to)
        })
    }

    pub(crate) fn as_faer(&self) -> MatRef<'_, f64> {
        MatRef::from_row_major_slice(&self.data, self.rows, self.cols)
    }

    pub(crate) fn from_faer(a: MatRef<'_, f64>) -> Self {
        let mut copy = Self::zeros(a.nrows(), a.ncols());
        MatMut::from_row_major_slice_mut(&mut copy.data, a.nrows(), a.ncols()).copy_from(a);
        copy
    }

    /// Returns the transpose.
    pub fn transposed(&self) -> Self {
        let mut out = Self::zeros(self.cols, self.rows);
        for (rows, cols) in tiles(self.rows, self.cols) {
            for i in rows {
                for j in cols.clone() {
                    out.data[j * self.rows + i] = self.data[i * self.cols + j];
                }
            }
        }
        out
    }

    /// Copies the matrix to a device, in f32.
    ///
    /// # Errors
    /// [`Error::Limit`] and [`Error::OutOfMemory`] when the device has no room.
    pub fn to_tensor(&self, device: &Device) -> Result<Tensor<f32>> {
        self.to_real(device)
    }

    /// Copies the matrix to a device, in f32 or f64.
    pub(crate) fn to_real<R: Real>(&self, device: &Device) -> Result<Tensor<R>> {
        let shape = [self.rows as u64, self.cols as u64];
        if R::DTYPE.is_wide() {
            return Tensor::from_slice(device, bytemuck::cast_slice(&self.data), &shape);
        }
        let values: Vec<R> = self.data.iter().copied().map(R::nearest).collect();
        Tensor::from_slice(device, &values, &shape)
    }

    /// Copies the elements of a tensor to the host. Waits.
    ///
    /// # Errors
    /// [`Error::Shape`] unless `x` is a matrix; the errors of [`Tensor::read`].
    pub fn from_tensor<T: Element>(x: &Tensor<T>) -> Result<Self> {
        let [rows, cols] = x.matrix("Matrix::from_tensor")?;
        Self::from_vec(x.read()?.into_iter().map(T::to_f64).collect(), to_usize(rows), to_usize(cols))
    }

    /// Copies the lower triangle of a square matrix to the upper triangle.
    pub(crate) fn mirror_lower(&mut self) {
        for (rows, cols) in tiles(self.rows, self.cols) {
            for i in rows {
                for j in cols.start..cols.end.min(i) {
                    self.data[j * self.cols + i] = self.data[i * self.cols + j];
                }
            }
        }
    }

    /// Changes the sign of the columns for which `negative` is true.
    pub(crate) fn negate_columns(&mut self, negative: &[bool]) {
        for row in self.data.chunks_exact_mut(self.cols.max(1)) {
            for (value, _) in row.iter_mut().zip(negative).filter(|(_, negative)| **negative) {
                *value = -*value;
            }
        }
    }

    /// Returns the elements of column `j`, from the top.
    ///
    /// # Panics
    /// When `j` is not below [`cols`](Self::cols).
    pub fn column(&self, j: usize) -> impl Iterator<Item = f64> + Clone {
        assert!(j < self.cols, "column {j} of {}", self.cols);
        self.data.iter().skip(j).step_by(self.cols).copied()
    }
}

/// The number of rows and of columns of a tile that fits a cache.
pub(crate) const SIDE: usize = 64;

/// Divides a matrix into tiles that fit a cache: the rows and the columns of each.
fn tiles(rows: usize, cols: usize) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
    let corners =
        (0..rows).step_by(SIDE).flat_map(move |row| (0..cols).step_by(SIDE).map(move |col| (row, col)));
    corners.map(move |(row, col)| (row..rows.min(row + SIDE), col..cols.min(col + SIDE)))
}

impl<const ROWS: usize, const COLS: usize> From<[[f64; COLS]; ROWS]> for Matrix {
    fn from(rows: [[f64; COLS]; ROWS]) -> Self {
        Self { rows: ROWS, cols: COLS, data: rows.into_iter().flatten().collect() }
    }
}

impl Matrix {
    /// Returns the index of element (i, j) in C order.
    fn place(&self, (i, j): (usize, usize)) -> usize {
        let Self { rows, cols, .. } = *self;
        assert!(i < rows && j < cols, "element ({i}, {j}) of a matrix of {rows} x {cols}");
        i * cols + j
    }
}

/// Panics when there is no such row or column.
impl Index<(usize, usize)> for Matrix {
    type Output = f64;

    fn index(&self, at: (usize, usize)) -> &f64 {
        &self.data[self.place(at)]
    }
}

/// Panics when there is no such row or column.
impl IndexMut<(usize, usize)> for Matrix {
    fn index_mut(&mut self, at: (usize, usize)) -> &mut f64 {
        let place = self.place(at);
        &mut self.data[place]
    }
}

/// The maximum number of rows, and of elements of a row, that are printed at each end.
const SHOWN: usize = 4;

/// Returns the indices out of `count` that are printed: the first ones, `None` for a gap, and the last ones.
fn ends(count: usize) -> impl Iterator<Item = Option<usize>> {
    let gap = SHOWN..count.saturating_sub(SHOWN).max(SHOWN);
    let first = (0..count.min(gap.start)).map(Some);
    first.chain((!gap.is_empty()).then_some(None)).chain((gap.end..count).map(Some))
}

/// Prints the rows and the shape. Of more than eight rows or columns, only the first and the last four are printed. A precision, as in
/// `{:.2?}`, applies to the elements.
impl fmt::Debug for Matrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (at, i) in ends(self.rows).enumerate() {
            f.write_str(if at > 0 { ",\n [" } else { "[" })?;
            for (at, j) in ends(self.cols).enumerate() {
                f.write_str(if at > 0 { ", " } else { "" })?;
                match (i, j) {
                    (Some(i), Some(j)) => fmt::Debug::fmt(&self[(i, j)], f)?,
                    _ => f.write_str("...")?,
                }
            }
            f.write_str("]")?;
        }
        write!(f, "], shape=[{}, {}]", self.rows, self.cols)
    }
}

/// Copies the elements, whatever the array's memory order.
#[cfg(feature = "ndarray")]
impl<S: ndarray::Data<Elem = f64>> From<&ndarray::ArrayBase<S, ndarray::Ix2>> for Matrix {
    fn from(array: &ndarray::ArrayBase<S, ndarray::Ix2>) -> Self {
        let (rows, cols) = array.dim();
        Self { rows, cols, data: array.iter().copied().collect() }
    }
}

/// Moves the elements without a copy.
#[cfg(feature = "ndarray")]
impl From<Matrix> for ndarray::Array2<f64> {
    fn from(Matrix { rows, cols, data }: Matrix) -> Self {
        Self::from_shape_vec((rows, cols), data)
            .expect("a matrix should have as many elements as its extents say")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(rows: usize, cols: usize) -> Matrix {
        Matrix::from_vec((0..rows * cols).map(|i| i as f64).collect(), rows, cols).unwrap()
    }

    #[test]
    fn elements_rows_and_columns_are_the_same_numbers() {
        let mut a = counted(3, 2);
        assert_eq!(a, Matrix::from([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]));
        for (i, j) in [(0, 0), (1, 1), (2, 0)] {
            assert_eq!((a[(i, j)], a.row(i)[j]), ((2 * i + j) as f64, a.column(j).nth(i).unwrap()));
        }
        a[(2, 1)] = -1.0;
        assert_eq!(a.into_vec(), [0.0, 1.0, 2.0, 3.0, 4.0, -1.0]);
        assert!(matches!(Matrix::from_vec(vec![0.0; 5], 2, 3), Err(Error::Shape { .. })));
    }

    #[test]
    #[should_panic(expected = "element (0, 2) of a matrix of 3 x 2")]
    fn a_column_beyond_the_last_is_not_the_next_row() {
        let _ = counted(3, 2)[(0, 2)];
    }

    #[test]
    fn long_matrices_print_their_ends() {
        assert_eq!(format!("{:.1?}", counted(1, 2)), "[[0.0, 1.0]], shape=[1, 2]");
        assert_eq!(format!("{:?}", Matrix::zeros(0, 3)), "[], shape=[0, 3]");
        assert!(!format!("{:?}", counted(8, 8)).contains("..."));
        let printed = format!("{:.0?}", counted(100, 9));
        assert_eq!(printed.lines().next(), Some("[[0, 1, 2, 3, ..., 5, 6, 7, 8],"));
        assert_eq!(printed.lines().count(), 9);
        let ending = " [891, 892, 893, 894, ..., 896, 897, 898, 899]], shape=[100, 9]";
        assert!(printed.ends_with(ending), "{printed}");
    }

    #[cfg(feature = "ndarray")]
    #[test]
    fn arrays_come_and_go_whatever_their_order() {
        let a = counted(3, 2);
        let array = ndarray::Array2::from(a.clone());
        assert_eq!((array.dim(), array[[2, 1]]), ((3, 2), a[(2, 1)]));
        assert_eq!(Matrix::from(&array), a);
        assert_eq!(Matrix::from(&array.t()), a.transposed());
        assert_eq!(Matrix::from(&array.slice(ndarray::s![1.., ..])), Matrix::from([[2.0, 3.0], [4.0, 5.0]]));
    }
}
