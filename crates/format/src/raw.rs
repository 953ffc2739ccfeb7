//! Declaring structures on disk: once, each field with its offset, asserted at compile time.

/// Declares a little-endian, packed structure: `Name[size] { offset => pub field: Type, ... }`.
///
/// The structure can be read from and written to bytes of any alignment, is all zero by default, and does not
/// compile if its size or one of its offsets differs from the stated one.
macro_rules! raw_struct {
    (
        $(#[$meta:meta])*
        pub struct $name:ident[$size:literal] {
            $($(#[$field_meta:meta])* $offset:literal => pub $field:ident: $type:ty,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(
            Clone,
            Copy,
            PartialEq,
            Eq,
            Debug,
            zerocopy::FromBytes,
            zerocopy::IntoBytes,
            zerocopy::Immutable,
            zerocopy::KnownLayout,
            zerocopy::Unaligned,
        )]
        #[repr(C)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: $type,)*
        }

        const _: () = {
            assert!(size_of::<$name>() == $size);
            $(assert!(std::mem::offset_of!($name, $field) == $offset);)*
        };

        impl $name {
            /// Bytes on disk.
            pub const LEN: usize = $size;
            /// Its fields, in their order.
            pub const FIELDS: &[crate::edges::Field] = &[$(crate::edges::Field {
                name: stringify!($field),
                offset: $offset,
                len: size_of::<$type>(),
            },)*];
        }

        impl Default for $name {
            fn default() -> Self {
                zerocopy::FromZeros::new_zeroed()
            }
        }
    };
}

pub(crate) use raw_struct;
