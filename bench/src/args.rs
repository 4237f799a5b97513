//! Arguments of the command line.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

/// Measures devices: copies, kernels, products, decompositions, start-up.
///
/// Prints a table and a score, and with --json a file that --compare puts beside other machines'. Exact results (random words,
/// codes, counts, products of small integers) are hashed and must agree between all devices. Exit status: 0; 1 when
/// a measurement failed or results differ; 2 when the command line cannot be understood.
#[derive(Debug, Parser)]
#[command(name = "teatime-bench", version, max_term_width = 100)]
pub(crate) struct Args {
    /// Devices by name, as `teatime devices` lists them [default: all]
    #[arg(long, value_name = "NAME")]
    pub(crate) device: Vec<String>,
    /// About how long each device takes; what would take longer is measured at a smaller size or skipped
    #[arg(long, value_name = "S", default_value_t = 60.0, value_parser = seconds)]
    pub(crate) seconds: f64,
    /// Only measurements whose name contains this
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) only: String,
    /// Writes the results here
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Measures a piece of the first run on a card instead: what `./run flight` of a bundle starts
    #[arg(long, value_enum, value_name = "PIECE")]
    pub(crate) flight: Option<Piece>,
    /// Prints the names of the devices there are, GPUs first, and measures nothing
    #[arg(long, exclusive = true)]
    pub(crate) names: bool,
    /// Measures each device in ten seconds, at smaller sizes
    #[arg(long, conflicts_with = "seconds")]
    pub(crate) quick: bool,
    /// Prints a Markdown table at the end, to paste
    #[arg(long)]
    pub(crate) markdown: bool,
    /// Writes a page: for each device a roofline, and a table
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Compares files of results, and measures nothing. FILE=NAME takes that device of a file
    ///
    /// By default, devices of one interface go together; where none do, the best device of each file.
    #[arg(
        long,
        value_name = "FILE",
        num_args = 2..,
        conflicts_with_all = ["device", "seconds", "quick", "only", "json", "html", "flight", "names"]
    )]
    pub(crate) compare: Option<Vec<String>>,
    /// Opens this device and prints seconds, in a process started for the start-up times
    #[arg(long, value_name = "NAME", hide = true)]
    pub(crate) startup: Option<String>,
    /// And makes and decomposes so many rows of the headline's matrix
    #[arg(long, value_name = "N", hide = true, requires = "startup", default_value_t = 0)]
    pub(crate) rows: u64,
    /// Opens the bare CUDA context of a device by number and prints seconds
    #[arg(long, value_name = "N", hide = true, exclusive = true)]
    pub(crate) startup_context: Option<usize>,
}

/// A part of the first measurements on a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Piece {
    /// The SVD of 10,000,000 x 20,000 random entries, or of a share of the rows, stage by stage
    Headline,
    /// Packed products of which no, few and some codes are missing
    Missing,
    /// A pass with the device's own lengths of steps and panels, and with shorter and longer ones
    Switches,
    /// Sums for each pair of columns of codes, as of distances and of relationships
    Pairs,
    /// Distances, a chain that stays on the device, Gaussians and Gram products of f32
    Dense,
    /// Rates that bound the kernels: products of bytes, additions to sums, reads, launches. CUDA alone
    Rates,
    /// The first pass over a .bed
    Bed,
    /// New processes, with an empty cache of compiled kernels and a filled one
    Startup,
}

impl Args {
    /// Returns about how many seconds each device takes.
    pub(crate) fn time(&self) -> f64 {
        if self.quick { 10.0 } else { self.seconds }
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err("a number of seconds, 0 to 86400".into()),
    }
}
