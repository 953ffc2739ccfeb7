//! The mounter, as a user of its own mount.

use std::path::Path;

use creamery_base::Result;
use creamery_fs::Filesystem;
use creamery_fuse::Errno;

use crate::asker::Asker;
use crate::open::subvolume_root;
use crate::options::Options;
use crate::rights::{Judged, SEARCH, WRITE};

/// Permissions that an owner needs to make files in a directory.
const OWNER_MAKES: u32 = (WRITE | SEARCH) << 6;

/// Returns a sentence if this user cannot make files in the root directory of a writable mount of `fs` at `dir`, with the ways out. `None` if
/// the user can, and if that is unknown because the root directory cannot be read: the mount reports that.
///
/// # Errors
/// No such subvolume, like [`mount`](crate::mount).
pub fn why_mounter_makes_nothing(fs: &Filesystem, options: &Options, dir: &Path) -> Result<Option<String>> {
    if options.transport.read_only() {
        return Ok(None);
    }
    let root = subvolume_root(fs, options)?;
    let Ok(judged) = Judged::of(fs, options.owner, root) else { return Ok(None) };
    let this_thread = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
    if judged.check_access(&Asker::of(this_thread), WRITE | SEARCH) != Err(Errno::EACCES) {
        return Ok(None);
    }
    let mounter = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let root = Root { owner: judged.owners(), mode: judged.attributes().mode };
    Ok(Some(root.advise(mounter, options.transport.allow_other, dir)))
}

/// The root directory, as the mount shows it.
struct Root {
    owner: (u32, u32),
    mode: u32,
}

impl Root {
    /// Says that the mounter may not write to it, and what to do.
    fn advise(&self, (user, group): (u32, u32), allow_other: bool, dir: &Path) -> String {
        let (uid, gid) = self.owner;
        let owner_makes = self.mode & OWNER_MAKES == OWNER_MAKES;
        let chmod = format!("`chmod u+rwx {}`", dir.display());
        let mut ways = Vec::new();
        if uid == user {
            ways.push(format!("make it writable with {chmod}"));
        }
        if !allow_other {
            // The two options exclude each other.
            ways.push("mount it with -o fakeroot (new files are root's)".to_owned());
        }
        if uid != user {
            let then = if owner_makes { String::new() } else { format!(", and then {chmod}") };
            ways.push(format!(
                "mount it with -o uid={user},gid={group} (all files are shown as yours){then}"
            ));
            ways.push(format!("make it with mkfs --owner {user}:{group}"));
        }
        let mode = self.mode & 0o7777;
        let ways = ways.join(", or ");
        format!("user {user} may not write to its root directory (owner {uid}:{gid}, mode {mode:o}): {ways}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_fits_the_owner_the_mode_and_the_options() {
        let of =
            |owner, mode, allow_other| Root { owner, mode }.advise((7, 8), allow_other, Path::new("mnt"));
        let rows = [
            (
                (0, 0),
                0o755,
                false,
                &["-o fakeroot", "-o uid=7,gid=8 (all files are shown as yours), or", "mkfs --owner 7:8"][..],
                &["chmod"][..],
            ),
            ((0, 0), 0o755, true, &["-o uid=7,gid=8", "mkfs --owner 7:8"], &["chmod", "fakeroot"]),
            ((0, 0), 0o555, true, &["-o uid=7,gid=8", "and then `chmod u+rwx mnt`"], &["fakeroot"]),
            (
                (7, 0),
                0o555,
                false,
                &["mode 555): make it writable with `chmod u+rwx mnt`", "-o fakeroot"],
                &["uid=", "--owner"],
            ),
            ((7, 8), 0o077, true, &["`chmod u+rwx mnt`"], &["fakeroot", "uid=", "--owner"]),
        ];
        for (owner, mode, allow_other, says, says_not) in rows {
            let said = of(owner, mode, allow_other);
            assert!(says.iter().all(|words| said.contains(words)), "{said}");
            assert!(!says_not.iter().any(|words| said.contains(words)), "{said}");
        }
    }
}
