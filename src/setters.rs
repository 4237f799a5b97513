//! Setters of options.

/// Makes a method for each field of options that takes its value and gives the options back: `name(type)`, and after `=` what is stored,
/// where that is not the argument itself. For the packages of this workspace.
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
