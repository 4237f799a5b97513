//! Axes of images.

/// The maximum number of axes of an image.
pub(crate) const MOST_AXES: usize = 5;

/// The kind of an axis.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AxisKind {
    /// Space.
    Space,
    /// Time.
    Time,
    /// Channels.
    Channel,
    /// Anything else, as the image calls it; none where it does not say.
    Other(Option<String>),
}

/// An axis of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// Its name, such as `y`.
    pub name: String,
    /// The kind of axis.
    pub kind: AxisKind,
    /// Unit of its scale, such as `micrometer`, where there is one.
    pub unit: Option<String>,
}

impl Axis {
    /// An axis along space with a unit, by its name in UDUNITS-2, such as `micrometer`.
    pub fn space(name: &str, unit: &str) -> Self {
        Self { name: name.to_owned(), kind: AxisKind::Space, unit: Some(unit.to_owned()) }
    }

    /// An axis along time with a unit, such as `second`.
    pub fn time(name: &str, unit: &str) -> Self {
        Self { kind: AxisKind::Time, ..Self::space(name, unit) }
    }

    /// An axis of channels.
    pub fn channel(name: &str) -> Self {
        Self { name: name.to_owned(), kind: AxisKind::Channel, unit: None }
    }

    /// By the type that metadata give; without one `z`, `y` and `x` go along space, `t` along time, and `c` along channels.
    pub(crate) fn new(name: &str, kind: Option<&str>, unit: Option<&str>) -> Self {
        let kind = match (kind, name) {
            (Some("space"), _) | (None, "z" | "y" | "x") => AxisKind::Space,
            (Some("time"), _) | (None, "t") => AxisKind::Time,
            (Some("channel"), _) | (None, "c") => AxisKind::Channel,
            _ => AxisKind::Other(kind.map(str::to_owned)),
        };
        Self { name: name.to_owned(), kind, unit: unit.map(str::to_owned) }
    }

    /// The type that metadata give it.
    pub(crate) fn kind_name(&self) -> Option<&str> {
        match &self.kind {
            AxisKind::Space => Some("space"),
            AxisKind::Time => Some("time"),
            AxisKind::Channel => Some("channel"),
            AxisKind::Other(name) => name.as_deref(),
        }
    }

    /// Its unit in messages.
    pub(crate) fn unit_name(&self) -> &str {
        self.unit.as_deref().unwrap_or("(no unit)")
    }
}

/// Says what is wrong with the axes of an image to be read or written; both ask for 2 or 3 axes along space, at most one along time and
/// one of another kind, each with a name of its own.
pub(crate) fn misfit(axes: &[Axis]) -> Option<String> {
    let count = |of: fn(&AxisKind) -> bool| axes.iter().filter(|axis| of(&axis.kind)).count();
    let space = count(|kind| *kind == AxisKind::Space);
    let time = count(|kind| *kind == AxisKind::Time);
    if let Some(twice) =
        axes.iter().enumerate().find(|(at, axis)| axes[..*at].iter().any(|other| other.name == axis.name))
    {
        return Some(format!("two axes are called `{}`", twice.1.name));
    }
    if !(2..=3).contains(&space) {
        return Some(format!("{space} axes go along space, expected 2 or 3"));
    }
    if time > 1 || axes.len() - space - time > 1 {
        let others = axes.len() - space - time;
        return Some(format!(
            "{time} axes go along time and {others} along channels or anything else, expected at most one of each"
        ));
    }
    None
}

/// Numbers of the axes along space.
pub(crate) fn spatial(axes: &[Axis]) -> impl Iterator<Item = usize> {
    axes.iter().enumerate().filter(|(_, axis)| axis.kind == AxisKind::Space).map(|(at, _)| at)
}
