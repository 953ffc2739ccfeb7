//! Options of a copy.

use crate::progress::OnError;

/// Options of a copy: recursion, kept attributes, sharing and errors.
///
/// ```
/// use creamery::copy::CopyOptions;
/// let everything = CopyOptions { recursive: true, archive: true, ..CopyOptions::default() };
/// # assert_ne!(everything, CopyOptions::default());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CopyOptions {
    /// Copies directories with everything below them.
    pub recursive: bool,
    /// Copies recursively, with modes, owners, times, xattrs, ACLs and hard links. Without it a copy only keeps permission bits; a copy
    /// that replaces a file then has the owner, mode, ACL, extended attributes and flags of that file, as with cp(1).
    pub archive: bool,
    /// Keeps the attributes that `archive` keeps, but does not make the copy recursive: a symbolic link then stands for its target.
    pub preserve: bool,
    /// Whether copies within a filesystem share the data of their sources.
    pub reflink: Reflink,
    /// Whether the copy goes on after a file that cannot be read or cannot be made at the destination.
    pub on_error: OnError,
    /// A file of the host that is an image of a Btrfs filesystem may be replaced, too, by a copy to its exact name.
    pub replace_images: bool,
}

/// Whether copies within a filesystem share the data of their sources until either is written to, as with cp(1).
///
/// ```
/// assert_eq!(creamery::copy::CopyOptions::default().reflink, creamery::copy::Reflink::Auto);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Reflink {
    /// Copies share data where that is possible.
    #[default]
    Auto,
    /// Copies share data; a file whose data cannot be shared is not copied.
    Always,
    /// Copies have their own data.
    Never,
}

impl CopyOptions {
    /// Whether the copy keeps more than permission bits.
    pub(crate) const fn keeps_all(self) -> bool {
        self.archive || self.preserve
    }
}
