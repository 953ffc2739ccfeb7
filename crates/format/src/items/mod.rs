//! The items of each tree, one file per tree or concern.
//!
//! `Raw*` structures are read in place with [`zerocopy::FromBytes`] and written with [`zerocopy::IntoBytes`].
//! Items that pack several entries, or end in bytes of any length, have iterators or views that check every length
//! and end at the first error: they accept any bytes.

pub(crate) mod chunk;
pub(crate) mod device;
pub(crate) mod dir;
pub(crate) mod extent;
pub(crate) mod file_extent;
pub(crate) mod free_space;
pub(crate) mod inode;
pub(crate) mod qgroup;
pub(crate) mod root;
pub(crate) mod state;
pub(crate) mod time;
pub(crate) mod verity;

use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use crate::corrupt::CorruptKind;

/// Returns the view of a structure at the start of `data`, and the rest; `what` names it in the error.
pub(crate) fn split<'a, T>(data: &'a [u8], what: &'static str) -> Result<(&'a T, &'a [u8]), CorruptKind>
where
    T: FromBytes + Immutable + KnownLayout + Unaligned,
{
    T::ref_from_prefix(data).map_err(|_| CorruptKind::Truncated {
        what,
        found: data.len(),
        want: size_of::<T>(),
    })
}

/// Returns the first `len` bytes of `data`, and the rest.
pub(crate) fn take<'a>(
    data: &'a [u8],
    len: usize,
    what: &'static str,
) -> Result<(&'a [u8], &'a [u8]), CorruptKind> {
    data.split_at_checked(len).ok_or(CorruptKind::Truncated { what, found: data.len(), want: len })
}

/// Declares an iterator over packed entries: `$parse` takes the rest and returns an entry and the new rest.
macro_rules! packed_iter {
    ($(#[$meta:meta])* $name:ident, $entry:ident, $parse:ident) => {
        $(#[$meta])*
        #[derive(Clone, Debug)]
        pub struct $name<'a> {
            rest: &'a [u8],
        }

        impl<'a> $name<'a> {
            /// Creates an iterator over the entries of an item's data.
            #[must_use]
            pub const fn new(data: &'a [u8]) -> Self {
                Self { rest: data }
            }
        }

        impl<'a> Iterator for $name<'a> {
            type Item = Result<$entry<'a>, CorruptKind>;

            fn next(&mut self) -> Option<Self::Item> {
                if self.rest.is_empty() {
                    return None;
                }
                match $parse(self.rest) {
                    Ok((entry, rest)) => {
                        self.rest = rest;
                        Some(Ok(entry))
                    }
                    Err(kind) => {
                        self.rest = &[];
                        Some(Err(kind))
                    }
                }
            }
        }

        impl std::iter::FusedIterator for $name<'_> {}
    };
}

pub(crate) use packed_iter;
