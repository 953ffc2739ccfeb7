//! Finds a way to read a filesystem that does not open.
//!
//! Each way is tried before it is reported: the image is opened that way, for reading only, and its root directory is listed. The way that
//! ignores the least damage wins.

use creamery_base::{ErrorKind, Logical, Result};
use creamery_device::ImageName;
use creamery_volume::NamedSet;

use super::{FindRoot, Roots, Start, find_roots};
use crate::rescue::Rescue;
use crate::{Filesystem, Image};

/// Values of `--rescue`, from the one that ignores the least damage.
const WORDS: [&str; 6] = ["", "ibadroots", "usebackuproot", "ibadroots:usebackuproot", "imetacsums", "all"];

/// Root trees that are tried, the newest first.
const ROOTS_MAX: usize = 16;

/// The largest image file that is searched for root trees, bytes: the search reads all tree blocks. A disk is not searched: the error
/// message would take minutes.
const SEARCHED_MAX: u64 = 64 << 30;

/// A way to read what is left of a filesystem.
///
/// ```
/// use creamery::rescue::{WayIn, way_in};
/// # let dir = tempfile::tempdir()?;
/// # let image = dir.path().join("disk.img");
/// # creamery::Image::make(&image).size(256 << 20).run()?;
/// # creamery::Image::options().write().open(&image)?.write("/note", "kept")?;
/// assert_eq!(way_in(&image), Some(WayIn::Read));
/// # Ok::<(), creamery::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WayIn {
    /// The filesystem opens for reading as it is; parts of it may be damaged
    /// ([`OnError::PastDamage`](crate::progress::OnError::PastDamage)).
    Read,
    /// The filesystem opens for reading with this value of `--rescue`.
    Rescue(&'static str),
    /// The filesystem opens for reading with the root tree at this address ([`Start::root_tree`]), with [`Rescue::ignore_bad_roots`].
    RootTree(Logical),
}

/// Looks for a way to read the filesystem in `image`, which is not changed. `None` if there is none.
#[must_use]
pub fn way_in(image: impl Into<NamedSet>) -> Option<WayIn> {
    let image = image.into();
    let mut opens = false;
    for words in WORDS {
        let rescue =
            if words.is_empty() { Rescue::default() } else { words.parse().expect("they are words of it") };
        let opened = Image::options().rescue(rescue).open(image.clone());
        opens |= words.is_empty() && opened.is_ok();
        match shows_root(opened) {
            Ok(()) if words.is_empty() => return Some(WayIn::Read),
            Ok(()) => return Some(WayIn::Rescue(words)),
            // It is open elsewhere, or cannot be opened at all: nothing else helps.
            Err(kind) if !kind.is_damage() => return None,
            Err(_) => {}
        }
    }
    // The names in an unreadable root directory are found elsewhere (`lost_names`).
    if opens {
        return Some(WayIn::Read);
    }
    if !ImageName::metadata(image.first()).is_ok_and(|meta| meta.is_file() && meta.len() <= SEARCHED_MAX) {
        return None;
    }
    let Roots { found, others, .. } = find_roots(image.clone(), &FindRoot::default()).ok()?;
    let rescue = Rescue { ignore_bad_roots: true, ..Rescue::default() };
    found.into_iter().chain(others).take(ROOTS_MAX).map(|root| root.logical).find_map(|root| {
        let start = Start { root_tree: Some(root), ..Start::default() };
        let opened = shows_root(Image::options().rescue(rescue).start(start).open(image.clone()));
        opened.ok().map(|()| WayIn::RootTree(root))
    })
}

/// Errors: the root directory cannot be listed, or is empty.
fn shows_root(opened: Result<Filesystem>) -> Result<(), ErrorKind> {
    let look = |fs: Filesystem| match fs.read_dir("/")?.next() {
        Some(Err(error)) => Err(error),
        Some(Ok(_)) => Ok(()),
        None => Err(ErrorKind::Unreadable.into()),
    };
    opened.and_then(look).map_err(|error| error.kind())
}
