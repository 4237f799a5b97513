//! Axes of images.

/// The maximum number of axes of an image.
pub(crate) const MOST_AXES: usize = 5;

/// The kind of an axis.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AxisKind {
    /// A spatial axis.
    Space,
    /// A time axis.
    Time,
    /// An axis of channels.
    Channel,
    /// Any other kind, with the image's name for it; `None` if the image gives none.
    Other(Option<String>),
}

/// An axis of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// The axis's name, such as `y`.
    pub name: String,
    /// The kind of the axis.
    pub kind: AxisKind,
    /// The unit of the axis's scale, such as `micrometer`, if it has one.
    pub unit: Option<String>,
}

impl Axis {
    /// Creates a spatial axis. `unit` is its name in UDUNITS-2, such as `micrometer`.
    pub fn space(name: &str, unit: &str) -> Self {
        Self { name: name.to_owned(), kind: AxisKind::Space, unit: Some(unit.to_owned()) }
    }

    /// Creates a time axis with a unit, such as `second`.
    pub fn time(name: &str, unit: &str) -> Self {
        Self { kind: AxisKind::Time, ..Self::space(name, unit) }
    }

    /// Creates an axis of channels.
    pub fn channel(name: &str) -> Self {
        Self { name: name.to_owned(), kind: AxisKind::Channel, unit: None }
    }

    /// Creates an axis of the kind that the metadata give. Without a kind, `z`, `y` and `x` are spatial, `t` is time, and `c` is channels.
    pub(crate) fn new(name: &str, kind: Option<&str>, unit: Option<&str>) -> Self {
        let kind = match (kind, name) {
            (Some("space"), _) | (None, "z" | "y" | "x") => AxisKind::Space,
            (Some("time"), _) | (None, "t") => AxisKind::Time,
            (Some("channel"), _) | (None, "c") => AxisKind::Channel,
            _ => AxisKind::Other(kind.map(str::to_owned)),
        };
        Self { name: name.to_owned(), kind, unit: unit.map(str::to_owned) }
    }

    /// Returns the name of the kind in metadata.
    pub(crate) fn kind_name(&self) -> Option<&str> {
        match &self.kind {
            AxisKind::Space => Some("space"),
            AxisKind::Time => Some("time"),
            AxisKind::Channel => Some("channel"),
            AxisKind::Other(name) => name.as_deref(),
        }
    }

    /// Returns the unit, for messages.
    pub(crate) fn unit_name(&self) -> &str {
        self.unit.as_deref().unwrap_or("(no unit)")
    }
}

/// Says why axes are not those of an image: an image has 2 or 3 spatial axes, at most one time axis and one axis of another kind, each with a
/// distinct name.
pub(crate) fn misfit(axes: &[Axis]) -> Option<String> {
    let count = |is_counted: fn(&AxisKind) -> bool| axes.iter().filter(|axis| is_counted(&axis.kind)).count();
    let space = count(|kind| *kind == AxisKind::Space);
    let time = count(|kind| *kind == AxisKind::Time);
    let others = axes.len() - space - time;
    let is_repeated = |(at, axis): &(usize, &Axis)| axes[..*at].iter().any(|other| other.name == axis.name);
    if let Some((_, twice)) = axes.iter().enumerate().find(is_repeated) {
        return Some(format!("two axes are called `{}`", twice.name));
    }
    if !(2..=3).contains(&space) {
        return Some(format!("{space} axes go along space, expected 2 or 3"));
    }
    if time > 1 || others > 1 {
        return Some(format!(
            "{time} axes go along time and {others} along channels or anything else, expected at most one of each"
        ));
    }
    None
}

/// Returns the indices of the spatial axes.
pub(crate) fn spatial(axes: &[Axis]) -> impl Iterator<Item = usize> {
    axes.iter().enumerate().filter(|(_, axis)| axis.kind == AxisKind::Space).map(|(at, _)| at)
}
