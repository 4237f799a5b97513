//! Setters of options, and names of their values.

/// Makes a setter for each field of an options struct, which takes the value and returns the options: `name(type)`, followed by `= expression`
/// if the stored value differs from the argument. For the packages of this workspace.
#[doc(hidden)]
#[macro_export]
macro_rules! setters {
    ([$($life:lifetime)?] $options:ty { $($(#[$attribute:meta])* $field:ident($type:ty) $(= $value:expr)?),* $(,)? }) => {
        impl$(<$life>)? $options {
            $(
                $(#[$attribute])*
                #[doc = concat!("Sets [`", stringify!($field), "`](#structfield.", stringify!($field), ").")]
                #[must_use]
                pub fn $field(self, $field: $type) -> Self {
                    let value = $crate::setters!(@ $field $($value)?);
                    Self { $field: value, ..self }
                }
            )*
        }
    };
    (@ $field:ident) => { $field };
    (@ $field:ident $value:expr) => { $value };
    ($options:ty { $($fields:tt)* }) => { $crate::setters! { [] $options { $($fields)* } } };
}

/// Gives an enum its names: `ALL`, its values in order, and `name`, which returns the name of a value on the command line. For the packages of
/// this workspace.
#[doc(hidden)]
#[macro_export]
macro_rules! names {
    ($type:ident { $($variant:ident = $name:literal),* $(,)? }) => {
        impl $type {
            /// All values, in the order of their declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// Returns the name on the command line.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name),*
                }
            }
        }
    };
}
