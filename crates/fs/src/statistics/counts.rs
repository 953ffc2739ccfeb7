//! Statistics from the counters of a room, field by field.

macro_rules! counts {
    // The counts of a structure within the structure may follow, each with the name it gets here.
    ($(#[$doc:meta])* $name:ident of $counters:ident { $($(#[$field_doc:meta])* $field:ident,)* }
     $(and $inner:ident of $within:ident { $($(#[$inner_doc:meta])* $inner_field:ident = $from:ident,)* })?) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
        #[serde(default)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: u64,)*
            $($($(#[$inner_doc])* pub $inner_field: u64,)*)?
        }

        impl $name {
            /// Each count with its name.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
                let counts = [
                    $((stringify!($field), self.$field),)*
                    $($((stringify!($inner_field), self.$inner_field),)*)?
                ];
                counts.into_iter()
            }
        }

        impl From<&$counters> for $name {
            fn from(counters: &$counters) -> Self {
                let $counters { $($field,)* $($within,)? } = *counters;
                $(let $inner { $($from: $inner_field),* } = $within;)?
                Self { $($field,)* $($($inner_field,)*)? }
            }
        }

        impl std::ops::AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                $(self.$field += other.$field;)*
                $($(self.$inner_field += other.$inner_field;)*)?
            }
        }
    };
}

pub(super) use counts;
