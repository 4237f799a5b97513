//! Hierarchical clustering of samples by their distances, and its tree.

use teatime::{Error, Result, linalg::Matrix};

use super::OP;

/// The largest distance allowed: squares of larger ones, which [`Linkage::Ward`] sums, may overflow f64.
const LARGEST: f64 = 1e150;

/// The distance between two clusters of samples, as scipy's `linkage` defines it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Linkage {
    /// The smallest distance between a sample of one cluster and a sample of the other.
    Single,
    /// The largest such distance between samples.
    Complete,
    /// The mean distance over all pairs of a sample of each cluster: UPGMA.
    Average,
    /// The mean of the distances from the two clusters that were merged into one of them: WPGMA.
    Weighted,
    /// Ward's distance: how much the merger adds to the sums of squares within clusters. It assumes Euclidean distances.
    Ward,
}

teatime::stable_text! { enum Linkage { Single, Complete, Average, Weighted, Ward } }

teatime::names! {
    Linkage {
        Single = "single", Complete = "complete", Average = "average", Weighted = "weighted", Ward = "ward",
    }
}

impl Linkage {
    fn method(self) -> kodama::Method {
        match self {
            Self::Single => kodama::Method::Single,
            Self::Complete => kodama::Method::Complete,
            Self::Average => kodama::Method::Average,
            Self::Weighted => kodama::Method::Weighted,
            Self::Ward => kodama::Method::Ward,
        }
    }
}

/// A merger of two clusters into one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Merge {
    /// The indices of the clusters, the lower first. An index below the number of samples n is a sample; n + i is the result of merge i.
    pub clusters: [usize; 2],
    /// The distance between the two clusters.
    pub height: f64,
    /// The number of samples in both clusters.
    pub samples: usize,
}

/// A hierarchical clustering, which merges the two nearest clusters until one is left.
#[derive(Clone, Debug, PartialEq)]
pub struct Tree {
    /// The mergers by ascending height, one fewer than samples: the rows of scipy's `linkage`. Of
    /// equal distances, any may be merged first, and not always the one that scipy takes.
    pub merges: Vec<Merge>,
}

/// A piece of a tree that is still to be written.
enum Printed {
    /// A cluster, and the height at which it is merged into another.
    Cluster(usize, Option<f64>),
    Comma,
    /// The end of a cluster of the first height, which is merged at the second.
    End(f64, Option<f64>),
}

impl Tree {
    /// Makes the tree of a symmetric matrix of distances, or of similarities up to 1. Takes [`bytes`] of memory.
    pub(super) fn new(matrix: &Matrix, similarities: bool, linkage: Linkage) -> Result<Self> {
        let n = matrix.rows();
        let pairs = (0..n).flat_map(|j| &matrix.row(j)[j + 1..]);
        let mut condensed = Vec::with_capacity(n * (n - 1) / 2);
        condensed.extend(pairs.map(|&value| if similarities { 1.0 - value } else { value }));
        let bad = condensed.iter().filter(|&&distance| distance.is_nan() || distance.abs() > LARGEST).count();
        if bad > 0 {
            let pairs = condensed.len();
            let why =
                format!("the distance of {bad} of {pairs} pairs of samples is NaN or above {LARGEST:e}");
            return Err(Error::argument(OP, "tree", why));
        }
        let steps = kodama::linkage(&mut condensed, n, linkage.method());
        let merge = |step: &kodama::Step<f64>| Merge {
            clusters: [step.cluster1, step.cluster2],
            height: step.dissimilarity,
            samples: step.size,
        };
        Ok(Self { merges: steps.steps().iter().map(merge).collect() })
    }

    /// Returns the tree in Newick format, with these names of the samples and no final line break. `number` formats a length.
    ///
    /// A branch is half as long as the difference of the heights at its ends. So the branches between two samples have
    /// the length of the height at which they are merged, and all samples are equally far from the root. Names that
    /// contain anything but letters, digits and `.-+/|` are in single quotes, since an unquoted underscore means a blank.
    ///
    /// # Errors
    /// [`Error::Argument`] unless there is one name for each sample, and for merges of clusters that do not exist or were merged already.
    ///
    /// ```
    /// use teatime_genotype::{Merge, Tree};
    ///
    /// let merge = |clusters, height, samples| Merge { clusters, height, samples };
    /// let tree = Tree { merges: vec![merge([0, 2], 1.0, 2), merge([1, 3], 4.0, 3)] };
    /// assert_eq!(tree.newick(&["a", "b", "c d"], |length| length.to_string())?, "(b:2,(a:0.5,'c d':0.5):1.5);");
    /// # Ok::<(), teatime::Error>(())
    /// ```
    pub fn newick(&self, samples: &[impl AsRef<str>], number: impl Fn(f64) -> String) -> Result<String> {
        let n = self.merges.len() + 1;
        if samples.len() != n {
            return Err(Error::argument(OP, "samples", format_args!("{} names for {n}", samples.len())));
        }
        let mut merged = vec![false; 2 * n - 1];
        for (number, Merge { clusters, .. }) in self.merges.iter().enumerate() {
            for &cluster in clusters {
                if cluster >= n + number || std::mem::replace(&mut merged[cluster], true) {
                    let why = format_args!("merge {number}, of {clusters:?}, is no tree's");
                    return Err(Error::argument(OP, "merges", why));
                }
            }
        }
        // A branch whose length rounding made negative gets the length 0.
        let branch = |below: f64, above: Option<f64>| {
            let length = above.map(|above| number(((above - below) / 2.0).max(0.0)));
            length.map_or_else(String::new, |length| format!(":{length}"))
        };
        let mut text = String::new();
        // This does not recurse, since single linkage makes trees as deep as the number of samples.
        let mut parts = vec![Printed::Cluster(2 * n - 2, None)];
        while let Some(part) = parts.pop() {
            match part {
                Printed::Cluster(sample, above) if sample < n => {
                    text += &quoted(samples[sample].as_ref());
                    text += &branch(0.0, above);
                }
                Printed::Cluster(cluster, above) => {
                    let Merge { clusters: [one, other], height, .. } = self.merges[cluster - n];
                    text.push('(');
                    parts.extend([
                        Printed::End(height, above),
                        Printed::Cluster(other, Some(height)),
                        Printed::Comma,
                        Printed::Cluster(one, Some(height)),
                    ]);
                }
                Printed::Comma => text.push(','),
                Printed::End(height, above) => {
                    text.push(')');
                    text += &branch(height, above);
                }
            }
        }
        text.push(';');
        Ok(text)
    }
}

/// Returns the bytes that a tree of that many samples takes on the host while it is made, besides the distances.
pub(super) fn bytes(samples: u64) -> u64 {
    // Half a matrix of f64, and 128 bytes for each sample.
    samples.saturating_mul(samples).saturating_mul(4).saturating_add(samples.saturating_mul(128))
}

/// Returns a name as a Newick label, quoted if necessary.
fn quoted(name: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || ".-+/|".contains(c);
    if !name.is_empty() && name.chars().all(plain) {
        return name.to_owned();
    }
    format!("'{}'", name.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::assert_refused;

    fn matrix(rows: &[&[f64]]) -> Matrix {
        Matrix::from_vec(rows.concat(), rows.len(), rows.len()).unwrap()
    }

    #[test]
    #[cfg(feature = "zarr")]
    fn scipys_linkage() {
        use teatime::{Device, Run, distance::Metric};

        use crate::{
            DistanceOptions, SampleMetric, distances,
            tests::{fixture, stored},
        };

        let genotypes = stored("dosages_v2.zarr", Some("uint8_zlib"));
        let theirs = std::fs::read_to_string(fixture("scipy/linkage.tsv")).unwrap();
        let metric = SampleMetric::Of(Metric::Correlation);
        for &linkage in Linkage::ALL {
            let options = DistanceOptions { metric, tree: Some(linkage), ..DistanceOptions::default() };
            let result = distances(&genotypes, &Device::cpu(), &options, &Run::default()).unwrap();
            let rows = theirs.lines().map(|line| line.split('\t').collect::<Vec<_>>());
            let rows: Vec<_> = rows.filter(|row| row[0] == linkage.name()).collect();
            let merges = result.tree.unwrap().merges;
            assert_eq!((merges.len(), rows.len()), (59, 59));
            for (merge, row) in merges.iter().zip(rows) {
                let [one, other, samples] = [1, 2, 4].map(|column| row[column].parse().unwrap());
                assert_eq!((merge.clusters, merge.samples), ([one, other], samples), "{linkage:?} {row:?}");
                let height: f64 = row[3].parse().unwrap();
                assert!((merge.height - height).abs() <= 1e-14, "{linkage:?} {merge:?} {row:?}");
            }
        }
    }

    #[test]
    fn similarities_are_taken_from_one() {
        let similar = matrix(&[&[1.0, 0.75, 0.5], &[0.75, 1.0, 0.25], &[0.5, 0.25, 1.0]]);
        let distant = matrix(&[&[0.0, 0.25, 0.5], &[0.25, 0.0, 0.75], &[0.5, 0.75, 0.0]]);
        for &linkage in Linkage::ALL {
            let [one, other] = [(&similar, true), (&distant, false)]
                .map(|(matrix, similarities)| Tree::new(matrix, similarities, linkage).unwrap());
            assert_eq!(one, other);
        }
        let tree = Tree::new(&distant, false, Linkage::Average).unwrap();
        let text = tree.newick(&["a", "b", "c"], |length| length.to_string()).unwrap();
        assert_eq!(text, "(c:0.3125,(a:0.125,b:0.125):0.1875);");
    }

    #[test]
    fn names_are_quoted() {
        let lone = Tree { merges: Vec::new() };
        for (name, label) in [
            ("A00", "A00"),
            ("NA12878.1-x+y/z|w", "NA12878.1-x+y/z|w"),
            ("Åsa", "Åsa"),
            ("A_1", "'A_1'"),
            ("it's", "'it''s'"),
            ("a b", "'a b'"),
            ("(a:1,b);", "'(a:1,b);'"),
            ("[x]", "'[x]'"),
            ("", "''"),
        ] {
            assert_eq!(lone.newick(&[name], |x| x.to_string()).unwrap(), format!("{label};"));
        }
        assert_refused(lone.newick(&["a", "b"], |x| x.to_string()), &["`samples`"]);
    }

    #[test]
    fn few_samples_and_deep_trees() {
        assert_eq!(Tree::new(&matrix(&[&[0.0]]), false, Linkage::Ward).unwrap().merges, []);
        let n = 200_000;
        let clusters = |i: usize| if i == 0 { [0, 1] } else { [i + 1, n + i - 1] };
        let merge = |i| Merge { clusters: clusters(i), height: 1.0 + i as f64, samples: i + 2 };
        let tree = Tree { merges: (0..n - 1).map(merge).collect() };
        let text = tree.newick(&vec!["x"; n], |length| length.to_string()).unwrap();
        assert_eq!((text.matches('(').count(), text.matches(')').count()), (n - 1, n - 1));
        assert!(text.starts_with("(x:99999.5,(x:99999,(") && text.contains("(x:0.5,x:0.5):0.5)"));
    }

    #[test]
    fn merges_that_make_no_tree_are_refused() {
        let merge = |clusters| Merge { clusters, height: 1.0, samples: 2 };
        for clusters in [[[0, 3], [1, 2]], [[0, 1], [2, 4]], [[0, 1], [2, 9]], [[0, 1], [0, 3]]] {
            let tree = Tree { merges: clusters.map(merge).to_vec() };
            assert_refused(tree.newick(&["a", "b", "c"], |x| x.to_string()), &["is no tree's"]);
        }
    }

    #[test]
    fn undefined_distances_are_counted() {
        let (nan, most) = (f64::NAN, f64::MAX);
        for (a, b, bad) in [(nan, 1.0, 1), (nan, nan, 2), (most, 1.0, 1), (f64::INFINITY, nan, 2)] {
            let matrix = matrix(&[&[0.0, a, b], &[a, 0.0, 1.0], &[b, 1.0, 0.0]]);
            for &linkage in Linkage::ALL {
                let words = format!("of {bad} of 3 pairs of samples is NaN");
                assert_refused(Tree::new(&matrix, false, linkage), &[&words]);
            }
        }
    }
}
