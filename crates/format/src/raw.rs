//! Declaring structures on disk: once, each field with its offset, asserted at compile time.

/// A field of a structure on disk.
///
/// ```
/// use creamery_format::{Field, RawDirItem};
/// assert!(RawDirItem::FIELDS.contains(&Field { name: "transid", offset: 17, len: 8 }));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Field {
    /// Its name here.
    pub name: &'static str,
    /// Its offset in the structure.
    pub offset: usize,
    /// Bytes.
    pub len: usize,
}

impl Field {
    /// Returns the field as numbers of at most eight bytes: the offset of each in the structure, and its length.
    ///
    /// ```
    /// use creamery_format::Field;
    /// let time = Field { name: "otime", offset: 148, len: 12 };
    /// assert!(time.numbers().eq([(148, 8), (156, 4)]));
    /// ```
    pub fn numbers(self) -> impl Iterator<Item = (usize, usize)> {
        let (mut at, end) = (self.offset, self.offset + self.len);
        std::iter::from_fn(move || {
            let width = [8, 4, 2, 1].into_iter().find(|width| at + width <= end)?;
            at += width;
            Some((at - width, width))
        })
    }
}

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
            pub const FIELDS: &[crate::raw::Field] = &[$(crate::raw::Field {
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
