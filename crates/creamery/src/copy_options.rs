//! What a copy takes along, and how.

use crate::progress::OnError;

/// What a copy takes along.
///
/// ```
/// use creamery::copy::CopyOptions;
/// let everything = CopyOptions { recursive: true, archive: true, ..CopyOptions::default() };
/// # assert_ne!(everything, CopyOptions::default());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CopyOptions {
    /// Directories with all that is in them.
    pub recursive: bool,
    /// Recursive, with modes, owners, times, xattrs, ACLs and hard links. Without it only permission bits are kept; a file in place of
    /// another one then has the owner, mode, ACL, extended attributes and flags of that, as with cp(1).
    pub archive: bool,
    /// The same attributes, but not recursive by that: then a symbolic link stands for what it leads to.
    pub preserve: bool,
    /// Whether copies within a filesystem share the data of their sources.
    pub reflink: Reflink,
    /// What becomes of the rest behind what cannot be read, or cannot be made where the copy goes.
    pub on_error: OnError,
    /// A file of the host that is an image of a Btrfs filesystem may be replaced, too, by what is copied to its very name.
    pub replace_images: bool,
}

/// Whether copies within a filesystem share the data of their sources until either is written to, as with cp(1).
///
/// ```
/// assert_eq!(creamery::copy::CopyOptions::default().reflink, creamery::copy::Reflink::Auto);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Reflink {
    /// They do where that is possible.
    #[default]
    Auto,
    /// They do, and what cannot be shared is not copied either.
    Always,
    /// Their data is their own.
    Never,
}

impl CopyOptions {
    /// Whether more than permission bits is kept.
    pub(crate) const fn keeps_all(self) -> bool {
        self.archive || self.preserve
    }
}
