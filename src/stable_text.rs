//! Values as text that stored arrays keep the hash of.

use std::{collections::BTreeMap, path::PathBuf};

/// A value as text that is hashed or stored, so that a run knows what an earlier one began. The text names types and fields in literals:
/// it stays the same where they are renamed. A field that is added should have no text while it is at its default. For the packages of
/// this workspace.
pub trait StableText {
    /// The text.
    fn stable_text(&self) -> String;
}

/// The text of a struct: its name, and the names and values of its fields.
pub fn fields(name: &str, fields: &[(&str, &dyn StableText)]) -> String {
    let fields = fields.iter().map(|(name, value)| format!("{name}: {}", value.stable_text()));
    format!("{name} {{ {} }}", fields.collect::<Vec<_>>().join(", "))
}

macro_rules! as_debug {
    ($($type:ty)*) => {$(
        impl StableText for $type {
            fn stable_text(&self) -> String {
                format!("{self:?}")
            }
        }
    )*};
}

// The standard library's own types have no names that change.
as_debug!(bool u8 u32 u64 usize f64 String PathBuf BTreeMap<String, u64>);

impl<T: StableText> StableText for Option<T> {
    fn stable_text(&self) -> String {
        self.as_ref().map_or_else(|| "None".into(), |value| format!("Some({})", value.stable_text()))
    }
}

impl<T: StableText> StableText for Vec<T> {
    fn stable_text(&self) -> String {
        let values: Vec<_> = self.iter().map(StableText::stable_text).collect();
        format!("[{}]", values.join(", "))
    }
}
