//! Values as stable text, whose hash is kept with stored arrays.

use std::{collections::BTreeMap, path::PathBuf};

/// A value as text that is hashed or stored, so that a run recognizes what an earlier run began. For the packages of this workspace.
///
/// The text has to stay the same: a type whose names or fields change gets an implementation of its own in place of [`stable_text!`], with the
/// old names as literals. A new field should add no text while it has its default.
///
/// [`stable_text!`]: crate::stable_text!
pub trait StableText {
    /// Returns the text.
    fn stable_text(&self) -> String;
}

/// Returns the text of a struct: its name, and the names and values of its fields.
pub fn fields(name: &str, fields: &[(&str, &dyn StableText)]) -> String {
    let fields = fields.iter().map(|(name, value)| format!("{name}: {}", value.stable_text()));
    format!("{name} {{ {} }}", fields.collect::<Vec<_>>().join(", "))
}

/// Implements [`StableText`] for a struct by the names of all its fields, or for an enum by those of its variants, which have no value or one.
#[doc(hidden)]
#[macro_export]
macro_rules! stable_text {
    (struct $type:ident { $($field:ident),* $(,)? }) => {
        impl $crate::stable_text::StableText for $type {
            fn stable_text(&self) -> String {
                let Self { $($field),* } = self;
                $crate::stable_text::fields(stringify!($type), &[$((stringify!($field), $field)),*])
            }
        }
    };
    (enum $type:ident { $($variant:ident $(($value:ident))?),* $(,)? }) => {
        impl $crate::stable_text::StableText for $type {
            fn stable_text(&self) -> String {
                match self {
                    $(Self::$variant $(($value))? => $crate::stable_text!(@ $variant $($value)?)),*
                }
            }
        }
    };
    (@ $variant:ident) => { stringify!($variant).to_owned() };
    (@ $variant:ident $value:ident) => {
        format!("{}({})", stringify!($variant), $crate::stable_text::StableText::stable_text($value))
    };
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

// The debug texts of the standard library's types are stable.
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
